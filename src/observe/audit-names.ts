/** The names by which the audit's index tells where a line may stand. */
import type { AuditFilter } from "./audit-filter.ts";

const text = String.raw`"(?:[^"\\]|\\.)*"`;
/** A member of a line by which it can be asked for, a list of tables, or the line's end. */
const member = new RegExp(
  `"(user|name|operation|database|decision|level|entry|path|operationCount)":(${text}|\\d+)|"tables":\\[((?:${text},?)*)\\]|\n`,
  "g",
);
const item = new RegExp(text, "g");

/** Text as the bytes of a line have it: in JSON, each byte a character. */
function written(value: string): string {
  return Buffer.from(JSON.stringify(value)).toString("latin1");
}

/** What was used, for those who ask for what was not: an entry, `/api`, or more than is named. */
export function useName(username: string, what: string): string {
  return `use ${written(username)} ${what}`;
}

/** Operations of a query that a line names. */
export const NAMED_OPERATIONS = 16;

/** What one line can be asked by besides its own names: what its user has used. */
class LineUse {
  #user = "";
  #isAllowed = false;
  #used: string[] = [];

  add(key: string, value: string): void {
    const plain = value.slice(1, -1);
    // Those of what was changed come later.
    if (key === "user") this.#user ||= value;
    else if (key === "decision") this.#isAllowed = plain === "allow";
    else if (key === "entry") this.#used.push(...plain.split(",").map((entry) => entry.trim()));
    else if (key === "path" && plain.startsWith("/api/")) this.#used.push("/api");
    else if (key === "operationCount" && Number(value) > NAMED_OPERATIONS) this.#used.push("more");
  }

  /** The names of the line; those of the next one begin. */
  end(): string[] {
    const names = this.#isAllowed ? this.#used.map((what) => `use ${this.#user} ${what}`) : [];
    this.#user = "";
    this.#isAllowed = false;
    this.#used = [];
    return names;
  }
}

/** What lines can be asked by, as their bytes have it. */
export function namesOf(lines: string): Set<string> {
  const names = new Set<string>();
  const use = new LineUse();
  for (const [found, key, value = "", tables = ""] of lines.matchAll(member)) {
    if (key !== undefined) {
      // The `name` of an author is that of a user.
      names.add(`${key === "name" ? "user" : key} ${value}`);
      use.add(key, value);
    } else if (found === "\n") for (const name of use.end()) names.add(name);
    for (const [table] of tables.matchAll(item)) names.add(`table ${table}`);
  }
  return names;
}

/** Tells whether lines are worth reading of which it is known which names may stand there. */
export type Wanted = (mayHave: (name: string) => boolean) => boolean;

const outcomes = {
  allowed: ["decision", "allow"],
  denied: ["decision", "deny"],
  failed: ["level", "error"],
} as const;

/** Wants lines with all names that every line has that fits a question; undefined if there are none. */
export function wantedBy(filter: AuditFilter): Wanted | undefined {
  const { user, database, table, operation, outcome } = filter;
  const [mark = "", word] = outcome === undefined ? [] : outcomes[outcome];
  const members = { user, database, table: table?.split(".").at(-1), operation, [mark]: word };
  const names = Object.entries(members).flatMap(([key, value]) =>
    value === undefined ? [] : [`${key} ${written(value)}`],
  );
  return names.length === 0 ? undefined : (mayHave) => names.every(mayHave);
}
