// The public API. Everything that the console shows or does goes through here.

const BASE = new URL("../api/v1/", document.baseURI);
const STORED = "sluice-key";

export const getKey = () => sessionStorage.getItem(STORED);

export function setKey(key) {
  if (key) sessionStorage.setItem(STORED, key);
  else sessionStorage.removeItem(STORED);
}

/** An answer that is not a success, with its problem details. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail ?? `the service answered ${status}`);
    this.status = status;
    this.document = document;
  }

  /** The remedy, if the service names one. */
  get hint() {
    return this.document.hint ?? null;
  }
}

const listeners = new Set();

/** Register a function to call whenever the service requires a key. */
export const onKeyWanted = (listener) => listeners.add(listener);

async function send(method, path, { body, headers = {}, query = {}, signal } = {}) {
  // "./", since "queries:validate" would be parsed as an absolute URL.
  const url = new URL(`./${path}`, BASE);
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, value);
  const sent = { ...headers };
  const key = getKey();
  if (key) sent.Authorization = `Bearer ${key}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  // With the key, a change that is sent again after a lost answer is not made twice.
  if (["POST", "PATCH", "DELETE"].includes(method) && !/:(validate|preview)$/.test(path)) {
    sent["Idempotency-Key"] = newKey();
  }
  let answer;
  try {
    answer = await fetch(url, { method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "the service does not answer", hint: "Is it running, and is the network up?" });
  }
  if (answer.ok || answer.status === 304) return answer;
  let document = {};
  if ((answer.headers.get("content-type") ?? "").includes("json")) document = await answer.json();
  if (answer.status === 401) listeners.forEach((listener) => listener());
  throw new Problem(answer.status, document);
}

function newKey() {
  // crypto.randomUUID is missing on pages that were loaded without TLS.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function json(method, path, options) {
  const answer = await send(method, path, options);
  return answer.status === 204 ? null : answer.json();
}

export const get = (path, query, signal) => json("GET", path, { query, signal });
export const post = (path, body, query, signal) => json("POST", path, { body, query, signal });
export const patch = (path, body, query) => json("PATCH", path, { body, query });
export const remove = (path, query) => json("DELETE", path, { query });

/** Get a document if its tag differs from the given one: [document or null, tag]. */
export async function getIfChanged(path, query, tag) {
  const answer = await send("GET", path, { query, headers: tag ? { "If-None-Match": tag } : {} });
  return answer.status === 304 ? [null, tag] : [await answer.json(), answer.headers.get("etag")];
}

/** Get every page of a collection. */
export async function getAll(path) {
  const items = [];
  let after;
  do {
    const page = await get(path, { limit: 1000, after });
    items.push(...page.items);
    after = page.next_cursor ?? undefined;
  } while (after !== undefined);
  return items;
}

/** Follow server-sent events until `signal` aborts; EventSource could not send a key. */
export async function follow(path, query, onEvent, signal) {
  const answer = await send("GET", path, { query, headers: { Accept: "text/event-stream" }, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const event = { event: "message", id: "", data: "" };
      for (const line of part.split(/\r?\n/)) {
        const colon = line.indexOf(":");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
      }
      if (event.data) onEvent({ ...event, data: JSON.parse(event.data) });
    }
  }
}
