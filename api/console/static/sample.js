// A sample of rows from a file, and the stream that it proposes.

const DELIMITERS = [",", ";", "\t", "|"];
const MOST_ROWS = 20_000;
const MOMENT = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?$/;

/** Tests of a type on texts, the narrowest first. */
const TYPES = [
  ["boolean", (text) => /^(true|false)$/i.test(text)],
  ["int", (text) => /^-?(0|[1-9]\d{0,8})$/.test(text)],
  ["bigint", (text) => /^-?(0|[1-9]\d{0,17})$/.test(text)],
  ["double", (text) => /^-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(text) && !/^-?0\d/.test(text)],
  ["timestamp", (text) => MOMENT.test(text)],
  ["date", (text) => /^\d{4}-\d\d-\d\d$/.test(text)],
];

/**
 * Propose a stream from a text.
 *
 * `rows` are lists of texts, null for nothing; `event(row, columns)` is a row as the API takes it. Throws an
 * Error that names the fault of the text.
 */
export function propose(fileName, text, cut) {
  const body = text.replace(/^\uFEFF/, "");
  if (!body.trim()) throw new Error("the file is empty");
  const found = /^\s*[[{]/.test(body) ? fromJson(body, cut) : fromCsv(body, cut);
  const used = new Set();
  const columns = found.names.map((name, index) => {
    const values = found.rows.map((row) => row[index]).filter((value) => value !== null);
    return { name: unique(identifier(name), used), source: name, type: typeOf(values) };
  });
  const eventTime = columns.find((column) => column.type === "timestamp")?.name ?? null;
  const stem = fileName.replace(/\.[^.]*$/, "");
  return {
    name: identifier(stem), columns, rows: found.rows, eventTime,
    event: (row, types) => Object.fromEntries(columns.map((column, index) => [column.name, valueOf(row[index], types[column.name])])),
  };
}

function identifier(text) {
  const plain = text.trim().replace(/[^A-Za-z0-9_]+/g, "_").replace(/^[^A-Za-z]+/, "").slice(0, 63);
  return plain || "column";
}

function unique(name, used) {
  let chosen = name;
  // Names do not depend on case.
  for (let n = 2; used.has(chosen.toLowerCase()); n += 1) chosen = `${name.slice(0, 60)}_${n}`;
  used.add(chosen.toLowerCase());
  return chosen;
}

export function typeOf(values) {
  if (!values.length) return "string";
  return TYPES.find(([, fits]) => values.every(fits))?.[0] ?? "string";
}

function valueOf(text, type) {
  if (text === null) return null;
  if (type === "boolean") return /^true$/i.test(text);
  if (type === "int" || type === "double") return Number(text);
  // Above 2^53 a number would lose digits; the API accepts whole numbers only as such, so these stay exact or are refused.
  if (type === "bigint") return Number.isSafeInteger(Number(text)) ? Number(text) : text;
  if (type === "timestamp") return /(Z|[+-]\d\d:?\d\d)$/.test(text) ? text.replace(" ", "T") : `${text.replace(" ", "T")}Z`;
  return text;
}

function fromJson(body, cut) {
  let objects;
  try {
    if (body.trimStart().startsWith("[")) objects = JSON.parse(body);
    else {
      const lines = body.split("\n").filter((line) => line.trim());
      if (cut) lines.pop();
      objects = lines.slice(0, MOST_ROWS).map((line) => JSON.parse(line));
    }
  } catch (error) {
    throw new Error(`it is not JSON: ${error.message}`);
  }
  objects = objects.slice(0, MOST_ROWS);
  if (!objects.length || objects.some((each) => each === null || typeof each !== "object" || Array.isArray(each))) {
    throw new Error("its rows are not objects");
  }
  const names = [...new Set(objects.flatMap((each) => Object.keys(each)))];
  const plain = (value) => (value === null || value === undefined ? null : typeof value === "object" ? JSON.stringify(value) : String(value));
  return { names, rows: objects.map((each) => names.map((name) => plain(each[name]))) };
}

function fromCsv(body, cut) {
  const first = body.split(/\r?\n/, 1)[0];
  const delimiter = DELIMITERS.reduce((best, each) => (first.split(each).length > first.split(best).length ? each : best));
  const records = parseCsv(body, delimiter);
  if (cut) records.pop();
  const names = records.shift();
  const rows = records.slice(0, MOST_ROWS);
  const wrong = rows.findIndex((row) => row.length !== names.length);
  if (wrong >= 0) throw new Error(`row ${wrong + 2} has ${rows[wrong].length} values, and the header ${names.length}`);
  if (!rows.length) throw new Error("it has a header and no rows");
  return { names, rows: rows.map((row) => row.map((value) => (value === "" ? null : value))) };
}

/** Records of a CSV text (RFC 4180): quotes around values, doubled inside. */
function parseCsv(text, delimiter) {
  const records = [];
  let record = [], value = "", quoted = false;
  const endRecord = () => {
    record.push(value);
    if (record.length > 1 || record[0] !== "") records.push(record);
    [record, value] = [[], ""];
  };
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (quoted) {
      if (char !== '"') value += char;
      else if (text[at + 1] === '"') [value, at] = [value + '"', at + 1];
      else quoted = false;
    } else if (char === '"' && value === "") quoted = true;
    else if (char === delimiter) [record, value] = [[...record, value], ""];
    else if (char === "\n") endRecord();
    else if (char !== "\r") value += char;
  }
  if (value !== "" || record.length) endRecord();
  return records;
}
