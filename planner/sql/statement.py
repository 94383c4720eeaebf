"""A parsed CQL text: streams, select list, conditions and windows; names are not yet resolved.

Statements that the grammar (``planner.sql.dialect.cql``) accepts but that are not shared window joins are
refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError

from catalog.steps import MOST_STREAMS
from planner.errors import CqlSyntaxError, InvalidWindow, UnsupportedCql
from planner.sql.dialect.cql import ASKS, EXAMPLE, NO_CLAUSE_INSIDE, Cql, Window, cql_parser
from planner.sql.dialect.locate import located
from planner.sql.joins import (
    JoinForm,
    Question,
    join_form,
    memberships,
    merged_columns,
    merged_output,
    question,
    refuse_subqueries,
    show,
)
from planner.sql.tree_clause import TreeClause, split_tree

#: Maximum length of a CQL text, and maximum nesting of its parentheses.
MAX_CHARACTERS = 100_000
MAX_DEPTH = 64


#: Matches a text up to its first quote or comment that is not closed.
_CLOSED = re.compile(r"""(?:'[^']*'|"[^"]*"|`[^`]*`|--[^\n]*|/\*.*?\*/|(?!/\*)[^'"`])*+""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Source:
    """One stream in FROM.

    Attributes:
        stream: Stream name as written.
        alias: Name by which the query refers to it.
        at: Syntax node of the stream name.
        alias_at: Syntax node of the alias, or of the stream name if there is no alias.
        window: Window written for this stream, or None.
    """

    stream: str
    alias: str
    at: exp.Identifier
    alias_at: exp.Identifier
    window: Window | None


@dataclass(frozen=True, slots=True)
class Statement:
    """A query as written; names are not yet resolved.

    Attributes:
        sources: The streams, in the order of FROM.
        select: Select list.
        form: How the streams are joined.
        on: ON, or WHERE inside EXISTS: conditions that make two rows partners.
        where: WHERE, without EXISTS and IN.
        using: Columns of USING.
        using_at: For each column of USING, the position in FROM of the stream after its JOIN.
        unused: Select list inside EXISTS, which has no effect.
        within: Windows of the left and of the right stream from WITHIN, or None.
        window: Window from the WINDOW at the end, or None.
        group: Entries of GROUP BY; empty without GROUP BY.
        having: Condition of HAVING, or None.
        tree: The TREE clause, or None.
    """

    sources: tuple[Source, ...]
    select: tuple[exp.Expr, ...]
    form: JoinForm
    on: tuple[exp.Expr, ...]
    where: tuple[exp.Expr, ...]
    using: tuple[exp.Identifier, ...]
    using_at: tuple[int, ...]
    unused: tuple[exp.Expr, ...]
    within: tuple[Window, Window] | None
    window: Window | None
    group: tuple[exp.Expr, ...]
    having: exp.Expr | None
    tree: TreeClause | None = None


@located
def parse(text: str) -> Statement:
    """Parse a CQL text.

    Raises:
        CqlSyntaxError: The text is not CQL.
        UnsupportedCql: The text has a construct that CQL does not support.
        InvalidWindow: A window is zero, negative, too long or given twice.
    """
    tokens, tree = split_tree(_outer_select(tokens_of(text)))
    select = _parse_select(text, tokens)
    _refuse_rest(select, tokens, _KNOWN | _GROUPING)
    refuse_subqueries([*select.expressions, *(j.args["on"] for j in _joins(select) if j.args.get("on"))])
    where = select.args.get("where")
    tables = _tables(select)
    asked = question(where.this, tables[0].alias_or_name) if where is not None else None
    inner: list[exp.Expr] = []
    if asked is None:
        _refuse_one(tables)
        if len(tables) > 2:
            _refuse_with_many(select, tables, tokens)
    else:
        tables, inner = [*tables, *_asked_table(asked, tables, tokens)], _where(asked.select)
    sources = tuple(_source(table) for table in tables)
    form = asked.form if asked is not None else _form(select, tokens)
    within = [table.meta["within"] for table in tables if table.meta["within"]]
    trailing = [
        clause.meta["window"]
        for part in (select, *([asked.select] if asked is not None else []))
        for clause in part.args.get("windows") or ()
    ]
    listed, conditions = _select_list(select), _where(select)
    using = [(at, name) for at, join in enumerate(_joins(select), 1) for name in join.args.get("using") or ()]
    on = [join.args["on"] for join in _joins(select) if join.args.get("on") is not None]
    if asked is not None:
        conditions = list(asked.others)
        on = [*memberships(asked, sources[0].alias), *inner]
        show([*on, *asked.select.expressions], (1, 0))
    if form.kind in ("semi", "anti"):
        show([*listed, *conditions], form.preserved)
    if len(sources) == 2:
        names, aliases = [name.name for _, name in using], (sources[0].alias, sources[1].alias)
        listed = [merged_output(node, names, aliases, form) for node in listed]
        conditions = [merged_columns(node, names, aliases, form) for node in conditions]
    statement = Statement(
        sources=sources,
        select=tuple(listed),
        form=form,
        on=tuple(on),
        where=tuple(conditions),
        using=tuple(name for _, name in using),
        using_at=tuple(at for at, _ in using),
        unused=tuple(asked.select.expressions) if asked is not None else (),
        within=within[0] if within else None,
        window=trailing[0] if trailing else None,
        group=tuple(select.args["group"].expressions) if select.args.get("group") else (),
        having=select.args["having"].this if select.args.get("having") else None,
        tree=tree,
    )
    if tree is not None and len(sources) == 2:
        _refuse("TREE in a join of two streams", "Leave it out: two streams have only one tree.", tree.word)
    _refuse_windows_twice(statement)
    if len(trailing) > 1 or len(within) > 1:
        raise InvalidWindow(
            "the query gives windows twice",
            hint="Keep one of the two.",
            at=trailing[1].at if len(trailing) > 1 else within[1][0].at,
        )
    return statement


def select_list_text(text: str) -> str:
    """Return the select list of a CQL text as it is written there.

    >>> select_list_text("ISTREAM(SELECT a.k, EXTRACT(hour FROM b.ts) AS h FROM A a [NOW], B b [NOW])")
    'a.k, EXTRACT(hour FROM b.ts) AS h'
    """
    tokens = _outer_select(tokens_of(text))
    depth, end = 0, 1
    for position, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0 and token.token_type == TokenType.FROM:
            end = position
            break
    return text[tokens[1].start : tokens[end - 1].end + 1]


def group_text(text: str) -> str:
    """Return the text of GROUP BY and HAVING as written; empty if the query has no GROUP BY.

    >>> group_text("SELECT a.k FROM A a [NOW], B b [NOW] WHERE a.k = b.k GROUP BY a.k, TUMBLE(1 HOUR)")
    'GROUP BY a.k, TUMBLE(1 HOUR)'
    """
    tokens = _outer_select(tokens_of(text))
    depth, first, last = 0, None, len(tokens)
    for position, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0 and token.token_type == TokenType.GROUP_BY:
            first = position
        if depth == 0 and first is not None and token.token_type == TokenType.WINDOW:
            last = position
            break
    return "" if first is None else text[tokens[first].start : tokens[last - 1].end + 1]


@located
def parse_condition(text: str) -> exp.Expr:
    """Parse a condition outside a query; names are not yet resolved.

    Raises:
        CqlSyntaxError: The text is not CQL.
        UnsupportedCql: The text has a construct that CQL does not support.
    """
    form = "Write one condition, such as A.v < 0.2."
    tokens = tokens_of(text)
    if not tokens:
        raise CqlSyntaxError("the condition is empty", hint=form, at=(0, 1))
    node = _parsed(text, tokens, exp.Condition, form)
    if node is None:
        raise CqlSyntaxError(f'unexpected "{tokens[0].text}"', hint=form, at=tokens[0])
    refuse_subqueries([node])
    return node


@located
def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text, without trailing semicolons.

    Raises:
        CqlSyntaxError: A quote or comment is not closed, the text is too long, or its parentheses are nested
            too deeply.
        UnsupportedCql: The text has several statements.
    """
    if len(text) > MAX_CHARACTERS:
        raise CqlSyntaxError(
            f"the query has {len(text):,} characters",
            hint=f"Write at most {MAX_CHARACTERS:,} characters.",
        )
    try:
        tokens = Cql().tokenize(text)
    except TokenError as error:
        opened = closed.end() if (closed := _CLOSED.match(text)) else 0
        raise CqlSyntaxError(
            "a quote or comment is not closed",
            hint="Close it with the character that opened it.",
            at=(opened, opened + 1),
        ) from error
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    depth = 0
    for token in tokens:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth > MAX_DEPTH:
            raise CqlSyntaxError(
                f"parentheses are nested more than {MAX_DEPTH} deep",
                hint="Write the condition with fewer parentheses.",
                at=token,
            )
        if token.token_type == TokenType.SEMICOLON:
            raise UnsupportedCql(
                "more than one statement is not supported",
                hint="Register each SELECT as a separate query.",
                at=token,
            )
    return tokens


def _outer_select(tokens: list[Token]) -> list[Token]:
    """Return the tokens without ``ISTREAM(...)`` around them; raise if they do not begin with SELECT."""
    words = [token.text.upper() for token in tokens[:2]]
    if len(words) == 2 and words[0] in ("ISTREAM", "DSTREAM", "RSTREAM") and words[1] == "(":
        if words[0] != "ISTREAM":
            _refuse(
                words[0], "Write ISTREAM(...) or nothing: results are a stream of joined rows.", tokens[0]
            )
        if tokens[-1].token_type != TokenType.R_PAREN:
            raise CqlSyntaxError(
                f'expected ")", found "{tokens[-1].text}"', hint="Close ISTREAM( at the end.", at=tokens[-1]
            )
        tokens = tokens[2:-1]
    first = tokens[0] if tokens else Token(TokenType.SENTINEL, "")
    if first.token_type == TokenType.WITH:
        _refuse("WITH", f"Write one SELECT over two streams: {EXAMPLE}.", first)
    if first.token_type != TokenType.SELECT:
        found = f'"{first.text}"' if first else "nothing"
        raise CqlSyntaxError(f"expected SELECT, found {found}", hint=f"Write {EXAMPLE}.", at=first)
    return tokens


def _parse_select(text: str, tokens: list[Token]) -> exp.Select:
    """Run the parser over the tokens, translating its errors."""
    select = _parsed(text, tokens, exp.Select, f"The form of a query is {EXAMPLE}.")
    if not isinstance(select, exp.Select):
        raise CqlSyntaxError("expected a SELECT", hint=f"Write {EXAMPLE}.", at=tokens[0])
    return select


def _parsed(text: str, tokens: list[Token], kind: type[exp.Expr], form: str) -> exp.Expr | None:
    """Run the parser over the tokens of a query or a condition."""
    parser = cql_parser(error_message_context=len(text))
    try:
        (parsed,) = (
            parser.parse(tokens, text) if kind is exp.Select else parser.parse_into(kind, tokens, text)
        )
    except ParseError as error:
        facts = error.errors[0]
        start = len(facts["start_context"] or "")
        word = facts["highlight"] or ""
        if word.upper() == "EMIT":
            emit = next(token for token in tokens if token.start == start)
            _refuse("EMIT", "Leave it out: results are emitted as they are made.", emit)
        description = facts["description"] or ""
        expected = re.match(r"Expecting (\S+)", description)
        found = f'"{word}"' if word else "the end"
        unexpected = f"unexpected {found}" if word else "the query ends too early"
        raise CqlSyntaxError(
            f'expected "{expected[1]}", found {found}' if expected else unexpected,
            hint=form,
            at=(start, start + len(word)),
        ) from error
    except RecursionError as error:
        raise CqlSyntaxError(
            "an expression is nested too deeply", hint="Write a shorter expression."
        ) from error
    for inner in () if parsed is None else parsed.find_all(exp.Select):
        # sqlglot also reads "FROM B", which has no SELECT for the error to locate.
        if inner is not parsed and "start" not in inner.meta:
            raise CqlSyntaxError(
                "expected SELECT, found a subquery that begins with FROM",
                hint="Write SELECT 1 FROM ... in EXISTS, SELECT key FROM ... in IN.",
                at=inner.args["from_"].this.this,
            )
    return parsed


def _refuse(construct: str, hint: str, token: Token) -> NoReturn:
    """Raise UnsupportedCql at a token."""
    raise UnsupportedCql(f"{construct} is not supported", hint=hint, at=token)


#: Parts of a SELECT that the binder reads. If sqlglot finds any other part, the query is refused.
_KNOWN = frozenset({"expressions", "from_", "joins", "where", "windows"})
_GROUPING = frozenset({"group", "having"})


def _refuse_rest(select: exp.Select, tokens: list[Token], known: frozenset[str] = _KNOWN) -> None:
    """Refuse parts of SELECT that a window join does not have."""
    if not _select_list(select):
        raise CqlSyntaxError("the select list is empty", hint="Write SELECT * or columns.", at=tokens[0])
    if select.args.get("distinct"):
        hint = "Leave it out: every pair of rows is delivered exactly once."
        _refuse("DISTINCT", hint, _first(tokens, TokenType.DISTINCT))
    if select.args.get("limit"):
        _refuse("TOP", "Leave it out, and page when you read the results (limit=).", tokens[1])
    for name, value in select.args.items():
        if value and name not in known:
            word = {"group": "GROUP BY"}.get(name, name.rstrip("_").upper())
            token = next((t for t in tokens if t.text.upper() == word), tokens[0])
            if known is _KNOWN:  # of a subquery, which has no groups
                _refuse(f"{word} in a subquery", NO_CLAUSE_INSIDE, token)
            _refuse(word, f"Leave it out. The form of a query is {EXAMPLE}.", token)


def _first(tokens: list[Token], kind: TokenType) -> Token:
    """Return the first token of a kind; the parser has accepted the text, so there is one."""
    return next((token for token in tokens if token.token_type == kind), tokens[0])


def _start(node: exp.Expr) -> int:
    """Return the offset in the text at which a node begins, or 0 if no part of it has an offset."""
    return min((n.meta["start"] for n in node.walk() if "start" in n.meta), default=0)


def _joins(select: exp.Select) -> list[exp.Join]:
    return list(select.args.get("joins") or ())


def _where(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    return [] if where is None else [where.this]


def _form(select: exp.Select, tokens: list[Token]) -> JoinForm:
    """Return the form of the join. Several joins are all inner, so the form is that of the first join."""
    forms = [join_form(join, tokens, _start(join.this)) for join in _joins(select)]
    return forms[0] if forms else JoinForm()


def _tables(select: exp.Select) -> list[exp.Table]:
    """Return the tables of FROM and JOIN."""
    clause = select.args.get("from_")
    if clause is None:
        end = Token(TokenType.SENTINEL, "")
        raise CqlSyntaxError("the query has no FROM", hint=f"Write {EXAMPLE}.", at=end)
    tables: list[exp.Table] = []
    for table in (clause.this, *(join.this for join in _joins(select))):
        if not isinstance(table, exp.Table) or table.args.get("joins"):
            raise UnsupportedCql("nested joins are not supported", hint=f"Write {EXAMPLE}.", at=table)
        tables.append(table)
    return tables


def _refuse_one(tables: list[exp.Table]) -> None:
    if len(tables) == 1:
        raise UnsupportedCql(
            "a query over one stream is not supported",
            hint=f"Join two streams: {EXAMPLE}. A self-join names the stream twice, with two aliases.",
            at=tables[0],
        )


def _refuse_with_many(select: exp.Select, tables: list[exp.Table], tokens: list[Token]) -> None:
    """Refuse clauses that a join of more than two streams cannot have."""
    if len(tables) > MOST_STREAMS:
        raise UnsupportedCql(
            f"a join of more than {MOST_STREAMS} streams is not supported",
            hint="Leave out streams that the results do not need.",
            at=tables[MOST_STREAMS].this,
        )
    for word, name, kind in (
        ("GROUP BY", "group", TokenType.GROUP_BY),
        ("HAVING", "having", TokenType.HAVING),
    ):
        if select.args.get(name):
            raise UnsupportedCql(
                f"{word} in a join of more than two streams is not supported yet",
                hint="Select the joined rows and aggregate them where you read the results.",
                at=_first(tokens, kind),
            )
    for table in tables:
        if table.meta["within"]:
            raise UnsupportedCql(
                "WITHIN in a join of more than two streams is not supported",
                detail="WITHIN bounds the distance between two streams, but not their distance to the other "
                "streams.",
                hint="Write a window after each stream, or one window at the end: WINDOW 5 MINUTES.",
                at=table.meta["within"][0].at,
            )
    for join in _joins(select):
        form = join_form(join, tokens, _start(join.this))
        if form.kind != "inner":
            raise UnsupportedCql(
                f"an {form.kind} join of more than two streams is not supported yet"
                if form.kind != "semi"
                else "a semi join of more than two streams is not supported yet",
                hint="Write JOIN between all streams, and register the other join as a query of two streams.",
                at=join.this.this,
            )


def _asked_table(asked: Question, outside: list[exp.Table], tokens: list[Token]) -> list[exp.Table]:
    """Return the one stream inside EXISTS or IN."""
    if len(outside) > 1:
        raise UnsupportedCql(
            "a subquery in a query with a join is not supported",
            hint=f"Select the rows of one stream: {ASKS}.",
            at=(asked.select.meta["start"], asked.select.meta["end"] + 1),
        )
    distinct = asked.select.args.get("distinct")
    if distinct is not None and not distinct.args.get("on"):
        asked.select.set("distinct", None)  # duplicate rows of a subquery have no effect
    _refuse_rest(asked.select, [t for t in tokens if t.start > asked.select.meta["end"] + 1])
    tables = _tables(asked.select)
    if len(tables) > 1:
        raise UnsupportedCql(
            "a join inside a subquery is not supported",
            hint=f"Select the rows of one stream: {ASKS}.",
            at=tables[1].this,
        )
    return tables


def _source(table: exp.Table) -> Source:
    """Turn a parsed table into a Source."""
    name, alias = table.this, table.args.get("alias")
    return Source(
        stream=name.name,
        alias=alias.name if alias is not None else name.name,
        at=name,
        # A placeholder as an alias has no position.
        alias_at=alias.this if alias is not None and isinstance(alias.this, exp.Identifier) else name,
        window=table.meta["window"],
    )


def _select_list(select: exp.Select) -> list[exp.Expr]:
    """Return the select list without the ISTREAM of ``SELECT ISTREAM(...)``."""
    items = select.expressions
    if len(items) == 1 and isinstance(items[0], exp.Anonymous) and items[0].name.upper() == "ISTREAM":
        return list(items[0].expressions)
    return list(items)


def _refuse_windows_twice(statement: Statement) -> None:
    """Refuse a stream whose window is given in more than one way."""
    hint = "Keep one of the two."
    own = [source for source in statement.sources if source.window is not None]
    if statement.window is not None and (own or statement.within):
        raise InvalidWindow(
            "the trailing WINDOW repeats windows that FROM gives", hint=hint, at=statement.window.at
        )
    if statement.within is not None and own:
        raise InvalidWindow("WITHIN repeats windows that FROM gives", hint=hint, at=statement.within[0].at)
