import { ClientError } from "../core/base/client-error.ts";

/** The engine's own codes with their HTTP status. The query grammar adds its own, all with 400. */
export const refusalStatuses = {
  ambiguous_column: 400,
  batch_not_atomic: 400,
  duplicate_column: 400,
  invalid_name: 400,
  invalid_type: 400,
  invalid_value: 400,
  no_unique_key: 400,
  not_supported: 400,
  number_out_of_range: 400,
  order_not_unique: 400,
  query_too_complex: 400,
  self_join: 400,
  too_many_databases: 400,
  unknown_column: 400,
  batch_member_denied: 403,
  permission_denied: 403,
  row_denied: 403,
  database_not_found: 404,
  table_not_found: 404,
  approval_stale: 409,
  constraint_violation: 409,
  database_exists: 409,
  database_in_use: 409,
  database_protected: 409,
  expectation_failed: 409,
  statement_failed: 409,
  table_exists: 409,
  too_many_changes: 409,
  too_many_rows: 409,
  upstream_broken: 502,
  busy: 503,
  database_unavailable: 503,
  outcome_unknown: 503,
  query_timeout: 503,
  storage_failed: 507,
} as const satisfies Record<string, number>;
export type RefusalCode = keyof typeof refusalStatuses;

/** Limits that the gateway sets for the caller. Its audit records them as denials. */
export const callerLimits: ReadonlySet<string> = new Set([
  "approval_stale",
  "batch_member_denied",
  "row_denied",
  "too_many_changes",
  "too_many_rows",
]);

interface Quoting {
  readonly value: string;
  readonly message: string;
}

/** An error of the database for the log: nothing that may quote a row. */
export interface Incident {
  readonly code: string;
  readonly reason: string;
  readonly file?: string | undefined;
}

/** The constraint that a row violates. It never holds a value. */
export interface Constraint {
  readonly kind: "unique" | "foreign_key" | "check" | "not_null";
  readonly name?: string | undefined;
  readonly table?: string | undefined;
  readonly columns?: readonly string[] | undefined;
}

/** For callers who may not see the constraint's name, columns or tables. */
function plainConstraint(kind?: Constraint["kind"]): string {
  const reasons = {
    unique: "a value that must be unique exists already",
    foreign_key: "a row that it refers to does not exist, or other rows refer to it",
    check: "a value is not allowed",
    not_null: "a value is missing",
  };
  const reason = kind === undefined ? "a value is missing or not allowed" : reasons[kind];
  return `A row violates a constraint: ${reason}`;
}

interface RefusalOptions extends ErrorOptions {
  readonly plain?: string;
  readonly incident?: Incident | undefined;
  readonly constraint?: Constraint | undefined;
  readonly members?: Readonly<Record<string, number | string>>;
  readonly quoting?: Quoting | undefined;
  readonly column?: string;
}

/** The message is written for the client. Everything that reads or runs a query may throw one. */
export class EngineRefusal extends ClientError {
  readonly code: RefusalCode;
  /** The message for callers who may not see the whole schema: it names only what the query names. */
  readonly plain: string;
  readonly members: Readonly<Record<string, number | string>>;
  /** The unknown column, as the query names it. */
  readonly column: string | undefined;
  readonly incident: Incident | undefined;
  /** Only its kind is for callers who may not see the whole schema. */
  readonly constraint: Constraint | undefined;
  readonly #quoting: Quoting | undefined;

  constructor(code: RefusalCode, message: string, options?: RefusalOptions) {
    super(message, options);
    this.members = options?.members ?? {};
    this.code = code;
    this.column = options?.column;
    this.incident = options?.incident;
    this.constraint = options?.constraint;
    this.#quoting = options?.quoting;
    const isConstraint = code === "constraint_violation";
    this.plain =
      options?.plain ?? (isConstraint ? plainConstraint(this.constraint?.kind) : message);
  }

  get status(): number {
    return refusalStatuses[this.code];
  }

  /** Denials by access rules get the code that the gateway uses for elements. */
  atElement(element: number): EngineRefusal {
    const { code, message, plain } = this;
    // The message names the element already.
    if (code === "expectation_failed") return this;
    if (code !== "row_denied") return this.at(`Batch[${element}]`);
    const members = { element, reason: code };
    return new EngineRefusal("batch_member_denied", message, { plain, members, cause: this });
  }

  at(place: string, hint = ""): EngineRefusal {
    const plain = `${place}: ${this.plain}${hint}`;
    const quoting = this.#quoting && {
      value: this.#quoting.value,
      message: `${place}: ${this.#quoting.message}`,
    };
    const { incident, constraint } = this;
    const options = { plain, cause: this, quoting, incident, constraint };
    return new EngineRefusal(this.code, `${place}: ${this.message}${hint}`, options);
  }

  /** Quotes the value only if the query contains it: any other value may belong to a hidden row. */
  quote(body: Buffer): EngineRefusal {
    if (this.#quoting === undefined) return this;
    const { value, message } = this.#quoting;
    const isNumber = /^-?\d+$/.test(value);
    const text = body.toString();
    const isHeld =
      text.includes(JSON.stringify(value)) ||
      (isNumber && new RegExp(`(?<![\\w.+-])${value}(?![\\w.])`).test(text));
    const { plain, constraint } = this;
    return isHeld
      ? new EngineRefusal(this.code, message, { plain, constraint, cause: this })
      : this;
  }
}

export class UnknownOutcome extends EngineRefusal {
  constructor(cause: unknown, why = "The connection to the database was lost") {
    super(
      "outcome_unknown",
      `${why} while the change was being committed. It may or may not have taken effect; check before you retry`,
      { cause },
    );
  }

  override at(): this {
    return this;
  }
}

/** The connection that was to read the row is gone. */
export class RowTooLong extends EngineRefusal {
  constructor(cause?: unknown) {
    const problem = "A row is too long to be read: at most 64 MiB are";
    super("query_too_complex", `${problem}; select fewer columns`, { cause });
  }
}

export function queryTimedOut(limitMs: number): EngineRefusal {
  return new EngineRefusal(
    "query_timeout",
    `The query was canceled because it took longer than ${limitMs / 1000} seconds`,
  );
}
