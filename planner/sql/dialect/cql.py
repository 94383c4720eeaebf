"""CQL: a sqlglot dialect with stream windows.

A window is written after a stream's name or alias, once for both streams at the end, or between two joined
streams (ksqlDB):

    FROM A [RANGE 5 MINUTES], B [NOW]      FROM A, B WHERE ... WINDOW 5 MIN
    FROM A [ROWS 100], B [NOW]             FROM A [PARTITION BY k ROWS 1], B [NOW]
    FROM A JOIN B WITHIN 5 MINUTES ON ...  FROM A JOIN B WITHIN (5 MINUTES, 1 MINUTE) ON ...

Flink's and Spark's windows are ordinary predicates on event times; ``planner.bind.time_bounds`` finds them.
This module does not know the streams: ``planner.bind.bind`` resolves names and types. Functions are not
resolved either: every call is an ``exp.Anonymous``, so that only ``planner.expressions.functions`` defines
which functions exist.

Sources: CQL windows and ISTREAM: Arasu, Babu, Widom, *The CQL Continuous Query Language*, VLDB Journal
2006, sections 4 and 5. Trailing ``WINDOW``: State-Slice, VLDB 2006, section 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from sqlglot import Token, TokenType, exp, generator, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.parser import SENTINEL_NONE

from catalog.errors import Unavailable
from catalog.times.durations import MAX_DURATION_US, Duration, duration
from catalog.values.query import UNBOUNDED_US, Clock
from planner.errors import CqlSyntaxError, InvalidWindow, UnsupportedCql
from planner.sql.dialect.locate import Place

EXAMPLE = "SELECT ... FROM A [RANGE 5 MINUTES], B [RANGE 5 MINUTES] WHERE A.key = B.key"
#: Function that groups pairs by intervals of their event times.
TUMBLE = "TUMBLE"
#: A query for the rows of one stream that have a partner in another stream, for hints.
ASKS = "SELECT ... FROM A [RANGE 5 MINUTES] WHERE EXISTS (SELECT 1 FROM B [NOW] WHERE A.key = B.key)"


#: Forms of a window, for hints.
WINDOWS = "Write [RANGE 5 MINUTES], [NOW], [RANGE UNBOUNDED] or [ROWS 100]."
#: Longest window of rows; no machine could hold a slice of more rows.
MAX_ROWS = 10**12


@dataclass(frozen=True, slots=True)
class Window:
    """Window of a stream: how far behind the other stream a row may be and still match.

    Attributes:
        length_us: W of the half-open window [0, W), in µs, or a number of rows if ``clock`` counts rows.
        at: Place of the window in the text.
        clock: Clock that measures the window.
        partition: Columns of PARTITION BY; rows are counted for each combination of their values. Empty
            without PARTITION BY.
    """

    length_us: int
    at: Place
    clock: Clock = "time"
    partition: tuple[exp.Identifier, ...] = ()


#: Hint for a clause of a subquery.
NO_CLAUSE_INSIDE = "Leave it out: a subquery only defines which rows are partners."


def refused_clause(name: str, hint: str) -> Callable[[Any], NoReturn]:
    """Return a clause parser that refuses the clause at its keyword."""

    def refuse(parser: CqlParser) -> NoReturn:
        if parser.asking:
            parser.refuse(f"{name} in a subquery", NO_CLAUSE_INSIDE)
        parser.refuse(name, hint)

    return refuse


#: Tokens with which a length of time begins.
_LENGTH_TOKENS = (TokenType.NUMBER, TokenType.STRING, TokenType.DASH)
_COMPUTED_TOKENS = (TokenType.L_PAREN, TokenType.VAR, TokenType.IDENTIFIER)

_NO_QUALIFY = "Select the joined rows and rank them where you read the results."
_NO_ORDER = "Leave it out: results come ordered by event time."
_NO_LIMIT = "Leave it out, and page when you read the results (limit=)."
_GROUPING_CLAUSES = {TokenType.GROUP_BY, TokenType.HAVING}
_REFUSED_CLAUSES = {
    TokenType.QUALIFY: ("QUALIFY", _NO_QUALIFY),
    TokenType.ORDER_BY: ("ORDER BY", _NO_ORDER),
    TokenType.SORT_BY: ("SORT BY", _NO_ORDER),
    TokenType.CLUSTER_BY: ("CLUSTER BY", _NO_ORDER),
    TokenType.DISTRIBUTE_BY: ("DISTRIBUTE BY", "Leave it out: Sluice places rows by the join key."),
    TokenType.LIMIT: ("LIMIT", _NO_LIMIT),
    TokenType.FETCH: ("FETCH", _NO_LIMIT),
    TokenType.OFFSET: ("OFFSET", _NO_LIMIT),
    TokenType.TABLE_SAMPLE: ("TABLESAMPLE", "Filter on a column instead."),
    TokenType.MATCH_RECOGNIZE: ("MATCH_RECOGNIZE", f"Write a join of two streams: {EXAMPLE}."),
    TokenType.CONNECT_BY: ("CONNECT BY", f"Write a join of two streams: {EXAMPLE}."),
    TokenType.FOR: ("FOR", "Leave it out: streams are not locked."),
    TokenType.LOCK: ("LOCK", "Leave it out: streams are not locked."),
}


class CqlParser(parser.Parser):
    """Parser of SELECT over windowed streams; raises Sluice's own errors where sqlglot's are less exact."""

    #: Whether the parser is inside EXISTS (...) or IN (...).
    asking = False

    #: As in DuckDB, ``a = b IS NULL`` tests whether the comparison is NULL.
    IS_PREDICATE_PRECEDENCE = parser.IsPredicatePrecedence.LOW

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CASE": lambda self: self._parse_case(),
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parser.Parser.FUNCTION_PARSERS[name]
        for name in ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")
    } | {TUMBLE: lambda self: self._parse_tumble()}
    PRIMARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **parser.Parser.PRIMARY_PARSERS,
        TokenType.NULL: lambda self, token: self.expression(exp.Null(), token),
        TokenType.TRUE: lambda self, token: self.expression(exp.Boolean(this=True), token),
        TokenType.FALSE: lambda self, token: self.expression(exp.Boolean(this=False), token),
    }
    QUERY_MODIFIER_PARSERS: ClassVar[dict[Any, Any]] = {
        TokenType.WHERE: lambda self: ("where", self._parse_where()),
        TokenType.WINDOW: lambda self: ("windows", self._parse_trailing_window()),
        TokenType.GROUP_BY: lambda self: ("group", self._parse_group_by()),
        TokenType.HAVING: lambda self: ("having", self._parse_having()),
        **{token: refused_clause(*names) for token, names in _REFUSED_CLAUSES.items()},
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[Any]] = set(QUERY_MODIFIER_PARSERS)
    TABLE_ALIAS_TOKENS: ClassVar[set[Any]] = (
        parser.Parser.TABLE_ALIAS_TOKENS - set(_REFUSED_CLAUSES) - _GROUPING_CLAUSES
    )

    def refuse(self, construct: str, hint: str, token: Token | None = None) -> NoReturn:
        """Raise UnsupportedCql at ``token``, or at the current token if it is None."""
        raise UnsupportedCql(f"{construct} is not supported", hint=hint, at=token or self._curr)

    def _expected(self, what: str, hint: str) -> NoReturn:
        found = f'"{self._curr.text}"' if self._curr else "the end"
        raise CqlSyntaxError(f"expected {what}, found {found}", hint=hint, at=self._curr)

    def raise_error(self, message: str, token: Token = SENTINEL_NONE) -> None:
        """Raise an error at the end of the text if the parser is there (sqlglot: at the last token)."""
        if not token and not self._curr:
            raise ParseError.new(message, description=message, start_context=self.sql.rstrip())
        super().raise_error(message, token)

    def _negate_range(self, this: Any = None) -> Any:
        """Parse ``x NOT LIKE y`` as NOT around LIKE, like all predicates (sqlglot marks the LIKE node)."""
        return self.expression(exp.Not(this=this)) if this else this

    # Subqueries

    def _parse_select(self, *args: Any, **kwargs: Any) -> Any:
        """Parse a SELECT; an inner SELECT is allowed only in EXISTS or IN and gets the place of that word."""
        if self._index == 0 or self._curr.token_type not in (TokenType.SELECT, TokenType.WITH):
            return super()._parse_select(*args, **kwargs)
        word = self._tokens[max(self._index - 2, 0)]
        asks = (
            word.token_type in (TokenType.EXISTS, TokenType.IN) and self._prev.token_type == TokenType.L_PAREN
        )
        if not asks or self.asking or self._curr.token_type == TokenType.WITH:
            self.refuse(
                "a subquery here" if asks else "a subquery", f"Write one SELECT over two streams, or {ASKS}."
            )
        self.asking = True
        try:
            select = super()._parse_select(*args, **kwargs)
        finally:
            self.asking = False
        if isinstance(select, exp.Expr):
            select.meta.update({"start": word.start, "end": word.end})
        return select

    def _parse_set_operations(self, this: Any) -> Any:
        if self._curr.token_type in self.SET_OPERATIONS:
            self.refuse(self._curr.text.upper(), "Register each SELECT as a separate query.")
        return this

    # Streams

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """Parse ``stream [window] [AS] alias [window] [WITHIN ...]``; windows go into ``meta``."""
        start = self._curr
        if start.token_type == TokenType.L_PAREN:
            self.refuse("a subquery in FROM", f"Name two streams: {EXAMPLE}.")
        if start.token_type in (TokenType.UNNEST, TokenType.LATERAL, TokenType.VALUES):
            self.refuse(f"{start.text.upper()} in FROM", f"Name two streams: {EXAMPLE}.")
        name = self._parse_id_var(any_token=False)
        if not isinstance(name, exp.Identifier):
            self._expected("a stream name", f"Write {EXAMPLE}.")
        if self._curr.token_type == TokenType.DOT:
            self.refuse("a qualified stream name", "Write the stream's name alone.", start)
        if self._curr.token_type == TokenType.L_PAREN:
            self.refuse("a table function", f"Name two streams: {EXAMPLE}.", start)
        table = exp.Table(this=name)
        window = self._parse_bracket_window()
        if (alias := self._parse_stream_alias()) is not None:
            table.set("alias", exp.TableAlias(this=alias))
        second = self._parse_bracket_window()
        if window and second:
            raise InvalidWindow(f'stream "{name.name}" has two windows', hint="Keep one.", at=second.at)
        table.meta["window"] = window or second
        table.meta["within"] = self._parse_within()
        return table

    def _parse_stream_alias(self) -> exp.Expr | None:
        if self._match(TokenType.ALIAS):
            return self._parse_id_var(any_token=True) or self._expected("an alias", "Write AS a.")
        starts_within = self._curr.text.upper() == "WITHIN" and self._next.token_type in (
            TokenType.NUMBER,
            TokenType.STRING,
            TokenType.L_PAREN,
        )
        if starts_within or self._curr.token_type not in self.TABLE_ALIAS_TOKENS:
            return None
        return self._parse_id_var(any_token=False, tokens=self.TABLE_ALIAS_TOKENS)

    # Windows

    def _parse_bracket_window(self) -> Window | None:
        """Parse ``[RANGE ...]``, ``[NOW]`` or ``[RANGE UNBOUNDED]``."""
        start = self._curr
        if not self._match(TokenType.L_BRACKET):
            return None
        if self._match_text_seq("NOW"):
            length = 1
        elif self._match_text_seq("UNBOUNDED") or self._match_text_seq("RANGE", "UNBOUNDED"):
            length = UNBOUNDED_US
        elif self._match_text_seq("RANGE"):
            length = self._parse_window_length()
        elif self._curr.text.upper() in ("ROWS", "ROW", "PARTITION", "PARTITION BY"):
            return self._parse_rows_window(start)
        else:
            self._expected("a window", WINDOWS)
        if self._curr.text.upper() == "SLIDE":
            self.refuse("SLIDE", "Leave it out: windows slide with every row.")
        if not self._match(TokenType.R_BRACKET):
            self._expected('"]"', WINDOWS)
        return Window(length, self._since(start))

    def _parse_rows_window(self, start: Token) -> Window:
        """Parse the rest of ``[ROWS n]`` or ``[PARTITION BY k, ... ROWS n]``."""
        columns: list[exp.Identifier] = []
        if self._match_text_seq("PARTITION BY") or self._match_text_seq("PARTITION", "BY"):
            while not columns or self._match(TokenType.COMMA):
                column = None if self._curr.text.upper() == "ROWS" else self._parse_id_var(any_token=False)
                if not isinstance(column, exp.Identifier):
                    self._expected("a column", "Write [PARTITION BY key ROWS 1].")
                columns.append(column)
        if not self._match_text_seq("ROWS"):
            hint = "Write [PARTITION BY key ROWS 1]." if columns else "Write [ROWS 100]."
            self._expected("ROWS", hint)
        number = self._curr
        negative = self._match(TokenType.DASH)
        text = self._curr.text
        if self._curr.token_type != TokenType.NUMBER:
            self._expected("a number of rows", "Write [ROWS 100].")
        self._advance()
        at = self._since(number)
        if negative or not text.isdigit() or int(text) == 0:
            raise InvalidWindow(
                f"a window of {'-' if negative else ''}{text} rows is not possible",
                hint="Write a whole number of rows above zero: [ROWS 100].",
                at=at,
            )
        if int(text) > MAX_ROWS:
            raise InvalidWindow(
                f"the window is longer than {MAX_ROWS:,} rows",
                hint="Write [RANGE UNBOUNDED] to keep all rows.",
                at=at,
            )
        if not self._match(TokenType.R_BRACKET):
            self._expected('"]"', "Write [ROWS 100].")
        clock: Clock = "key rows" if columns else "rows"
        return Window(int(text), self._since(start), clock, tuple(columns))

    # Groups

    def _parse_group_by(self) -> exp.Expr:
        start = self._curr
        group = self._parse_group()
        if (
            group is None
            or not group.expressions
            or any(v for name, v in group.args.items() if name != "expressions")
        ):
            self.refuse(
                "GROUP BY other than a list of columns", "Write GROUP BY a.key, TUMBLE(1 HOUR).", start
            )
        group.meta.update({"start": start.start})
        return group

    def _parse_tumble(self) -> exp.Expr:
        """Parse ``TUMBLE(1 HOUR)`` into a node that contains the length in µs."""
        start = self._curr
        if start.token_type not in (*_LENGTH_TOKENS, TokenType.INTERVAL):
            self._expected("a length of time", "Write TUMBLE(1 HOUR): intervals of the pairs' event times.")
        length = self._parse_duration()
        if length.months:
            raise InvalidWindow(
                "months and years have no fixed length",
                hint="Write the length in days: TUMBLE(30 DAYS).",
                at=self._since(start),
            )
        if not 0 < length.us <= MAX_DURATION_US:
            raise InvalidWindow(
                f"{TUMBLE} needs a length above zero, of at most 1,000 years",
                hint="Write TUMBLE(1 HOUR).",
                at=self._since(start),
            )
        node = exp.Anonymous(this=TUMBLE, expressions=[exp.Literal.number(length.us)])
        node.update_positions(line=start.line, col=start.col, start=start.start, end=self._prev.end)
        return node

    def _parse_trailing_window(self) -> list[exp.Expr]:
        start = self._curr
        self._advance()
        if self._curr.token_type not in (*_LENGTH_TOKENS, TokenType.INTERVAL):
            self.refuse(
                "a WINDOW clause other than a length",
                "Write WINDOW 60 MIN at the end, or [RANGE 60 MINUTES] after each stream.",
                start,
            )
        length = self._parse_window_length()
        clause = exp.Var(this="window")
        clause.meta["window"] = Window(length, self._since(start))
        return [clause]

    def _parse_within(self) -> tuple[Window, Window] | None:
        """Parse ksqlDB's WITHIN into the windows of the left and of the right stream.

        In ``WITHIN (before, after)``, the right row may be older than the left row by up to ``before``, or
        newer by up to ``after``. Both bounds are inclusive, as in Kafka's JoinWindows.
        """
        start = self._curr
        if not self._match_text_seq("WITHIN"):
            return None
        if self._match(TokenType.L_PAREN):
            before = self._parse_window_length(inclusive=True)
            if not self._match(TokenType.COMMA):
                self._expected('","', "Write WITHIN (5 MINUTES, 1 MINUTE).")
            after = self._parse_window_length(inclusive=True)
            if not self._match(TokenType.R_PAREN):
                self._expected('")"', "Write WITHIN (5 MINUTES, 1 MINUTE).")
        else:
            before = after = self._parse_window_length(inclusive=True)
        at = self._since(start)
        if self._curr.text.upper() == "GRACE":
            self.refuse(
                "GRACE PERIOD",
                "Leave it out: the lateness of each stream determines how late its rows may be.",
            )
        return Window(after, at), Window(before, at)

    def _parse_window_length(self, inclusive: bool = False) -> int:
        """Parse the length of a window and return W in µs; an inclusive bound adds 1 µs."""
        start = self._curr
        length = self._parse_duration()
        at = self._since(start)
        if length.months:
            raise InvalidWindow(
                "months and years have no fixed length",
                hint="Write the window in days: [RANGE 30 DAYS].",
                at=at,
            )
        if length.us < 0 or (length.us == 0 and not inclusive):
            raise InvalidWindow(
                f"a window of {'zero' if length.us == 0 else 'negative'} length holds nothing",
                hint="Write a length above zero, or [NOW] for rows of equal event time.",
                at=at,
            )
        if length.us > MAX_DURATION_US:
            raise InvalidWindow(
                "the window is longer than 1,000 years", hint="Write [RANGE UNBOUNDED].", at=at
            )
        return length.us + inclusive

    def _parse_duration(self) -> Duration:
        """Parse ``5 MINUTES``, ``1 HOUR 30 MINUTES``, ``'5 minutes'`` or ``INTERVAL '5' MINUTE``."""
        self._match(TokenType.INTERVAL)
        start, words = self._curr, list[str]()
        if self._match(TokenType.DASH):
            words.append("-")
        while self._curr.token_type in (TokenType.NUMBER, TokenType.STRING):
            words.append(self._curr.text)
            self._advance()
            if not words[-1][-1:].isalpha() and self._is_unit(self._curr):
                words.append(self._curr.text)
                self._advance()
        length = duration(words)
        if isinstance(length, str):
            hint = "Write a number and a unit, such as 5 MINUTES or 90 SECONDS."
            raise CqlSyntaxError(length, hint=hint, at=self._since(start))
        return length

    def _is_unit(self, token: Token) -> bool:
        """Return whether a token is read as a unit: any word after a number, so that errors can name it."""
        return (
            bool(token)
            and token.text.isalpha()
            and token.token_type
            not in (
                *self.QUERY_MODIFIER_PARSERS,
                TokenType.AND,
                TokenType.OR,
                TokenType.ON,
                TokenType.FROM,
                TokenType.ALIAS,
                TokenType.IS,
                TokenType.BETWEEN,
                TokenType.IN,
                TokenType.THEN,
                TokenType.ELSE,
                TokenType.END,
                TokenType.WHEN,
            )
        )

    def _parse_interval(self, *args: Any, **kwargs: Any) -> Any:
        """Parse an interval literal; its length is stored in ``meta``."""
        start = self._curr
        if start.token_type != TokenType.INTERVAL:
            return None
        if self._next.token_type not in _LENGTH_TOKENS:
            self._refuse_computed_interval()
            return None
        length = self._parse_duration()
        node = exp.Interval()
        node.update_positions(line=start.line, col=start.col, start=start.start, end=self._prev.end)
        node.meta["duration"] = length
        return node

    def _refuse_computed_interval(self) -> None:
        """Refuse ``INTERVAL (b.v) SECOND`` and ``INTERVAL b.v SECOND``.

        If no unit follows, INTERVAL may be the name of a column.

        Raises:
            CqlSyntaxError: An expression and a unit follow INTERVAL.
        """
        behind = self._tokens[self._index + 1 :]
        depth = size = 0
        for size, token in enumerate(behind, start=1):
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            following = behind[size] if size < len(behind) else None
            if (
                depth <= 0
                and (following is None or following.token_type != TokenType.DOT)
                and (token.token_type != TokenType.DOT)
            ):
                break
        if not 0 < size < len(behind) or behind[0].token_type not in _COMPUTED_TOKENS:
            return
        unit = behind[size]
        if isinstance(duration(["1", unit.text]), str):
            return
        raise CqlSyntaxError(
            "an interval has a constant length",
            detail="The number of an interval must be a literal. It cannot be computed from columns.",
            hint=f"Write INTERVAL '5' {unit.text}. In a condition that does not bound a window, "
            f"CAST(x AS INT) * INTERVAL '1' {unit.text} is possible.",
            at=(self._curr.start, unit.end + 1),
        )

    def _since(self, start: Token) -> Place:
        """Return the place of the text parsed since ``start``, or of ``start`` if nothing was parsed."""
        return (start.start, max(self._prev.end, start.end) + 1) if start else start


def _interval_text(self: Any, node: exp.Interval) -> str:
    length: Duration = node.meta["duration"]
    months = [f"{length.months} MONTHS"] if length.months else []
    us = [f"{length.us} MICROSECONDS"] if length.us or not months else []
    return f"INTERVAL '{' '.join([*months, *us])}'"


class CqlGenerator(generator.Generator):
    """Generator of CQL text that the parser reads back as the same condition."""

    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **generator.Generator.TRANSFORMS,
        exp.Interval: _interval_text,
        exp.IntDiv: lambda self, node: self.binary(node, "//"),
        exp.RegexpLike: lambda self, node: f"{self.sql(node, 'this')} RLIKE {self.sql(node, 'expression')}",
        exp.StrPosition: lambda self, node: (
            f"POSITION({self.sql(node, 'substr')} IN {self.sql(node, 'this')})"
        ),
    }


class Cql(Dialect):
    """Sluice's CQL."""

    class Tokenizer(tokens.Tokenizer):
        """Standard tokens, and the tokens that Spark and DuckDB add."""

        IDENTIFIERS: ClassVar[list[Any]] = ['"', "`"]
        KEYWORDS: ClassVar[dict[str, Any]] = {**tokens.Tokenizer.KEYWORDS, "//": TokenType.DIV}

    Parser = CqlParser
    Generator = CqlGenerator


def cql_parser(error_message_context: int) -> parser.Parser:
    """Return a parser of CQL that raises at the first error.

    Raises:
        Unavailable: sqlglot is the build compiled with mypyc (``sqlglotc``), whose classes cannot be
            subclassed.
    """
    try:
        return Cql().parser(error_level=ErrorLevel.IMMEDIATE, error_message_context=error_message_context)
    except TypeError as error:
        raise Unavailable(
            "CQL cannot be parsed with the compiled build of sqlglot",
            detail=f"The package sqlglotc is installed beside sqlglot: {error}.",
            hint="Run: pip uninstall sqlglotc",
        ) from error
