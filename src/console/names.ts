import { maySeeGrants } from "../access/administration.ts";
import { seeTable, whyUnseen } from "../access/policy.ts";
import type { Subject } from "../access/roles.ts";
import type { Gateway } from "../gateway/gateway.ts";
import { credentialOf } from "../gateway/query.ts";
import { Refusal } from "../refusal.ts";
import { fieldLines } from "../upstream/headers.ts";
import { createSchemaSource } from "../upstream/schema-source.ts";

const TIMEOUT_MS = 2000;
const LARGEST_ANSWER_BYTES = 4 * 1024 * 1024;
const OFFERED = 200;
const DESCRIBED = 5;

const origin = { via: "query" } as const;

/** Schema names that a form suggests; empty lists if the upstream does not tell. */
export interface SchemaNames {
  readonly databases: readonly string[];
  /** Tables of the database that the form names. */
  readonly tables: readonly string[];
  /** Columns of the table, or of the tables that match the pattern. */
  readonly columns: readonly string[];
}

/**
 * Suggests databases, tables and columns on which a console user may grant. Names that the upstream
 * does not return in time are left out.
 */
export function namesOffered({ access, routing, headers }: Gateway) {
  const mayOffer = (actor: Subject, database: string) =>
    maySeeGrants(access.snapshot, actor, database) &&
    whyUnseen(access.snapshot, actor, database, origin) === undefined;
  const source = createSchemaSource<Subject>({
    places: routing.places.map(({ holds, group }) => ({
      holds,
      get: ({ username }, path, signal) =>
        group.ask({
          ...{ user: username, path, body: Buffer.alloc(0), isRead: true, signal },
          fields: fieldLines({ accept: "application/json", ...credentialOf({ headers }) }),
          largest: LARGEST_ANSWER_BYTES,
          hold: () => {},
        }),
    })),
    whyUnseen: (actor, database) => (mayOffer(actor, database) ? undefined : "no_grant"),
  });

  async function columnsOf(actor: Subject, database: string, table: string, signal: AbortSignal) {
    const seen = seeTable(access.snapshot, actor, database, table, origin);
    if (typeof seen === "string") return [];
    const { columns } = await source.describeTable(actor, database, table, signal);
    return columns.map(({ name }) => name).filter((name) => seen.sees(name));
  }

  return async (actor: Subject, database: string, table: string): Promise<SchemaNames> => {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const none = (error: unknown) => {
      if (error instanceof Refusal) return [];
      throw error;
    };
    const isNamed = database !== "" && database !== "*";
    const [databases, all] = await Promise.all([
      source.listDatabases(actor, signal).catch(none),
      isNamed ? source.listTables(actor, database, signal).catch(none) : [],
    ]);
    const tables = all.filter(
      (name) => typeof seeTable(access.snapshot, actor, database, name, origin) !== "string",
    );
    const meant = tables.filter((name) =>
      table.endsWith("*") ? name.startsWith(table.slice(0, -1)) : name === table,
    );
    const columns = await Promise.all(
      meant.slice(0, DESCRIBED).map((name) => columnsOf(actor, database, name, signal).catch(none)),
    );
    return {
      databases: databases.slice(0, OFFERED),
      tables: tables.slice(0, OFFERED),
      // The form separates names with commas.
      columns: [...new Set(columns.flat())].filter((name) => !name.includes(",")).slice(0, OFFERED),
    };
  };
}
