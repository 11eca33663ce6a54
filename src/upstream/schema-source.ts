import { z } from "zod";
import { Refusal } from "../refusal.ts";
import type { QueryAnswer } from "./answer-stream.ts";

/** An optional note on a table. Ignored if another engine writes it differently. */
function remark<Of extends z.ZodType>(schema: Of) {
  return schema.optional().catch(undefined);
}
const words = remark(z.string());
const mark = remark(z.literal(true));
const column = z.object({
  name: z.string(),
  type: z.string(),
  primary_key: z.boolean(),
  nullable: z.boolean(),
  unique: mark,
  serial: mark,
  default: words,
  references: words,
  comment: words,
});
const table = z.object({
  columns: z.array(column),
  keys: remark(z.array(z.array(z.string()))),
  rows: remark(z.number().int().nonnegative()),
  comment: words,
});
const databaseList = z.object({ data: z.object({ databases: z.array(z.string()) }) });
const tableList = z.object({ data: z.object({ tables: z.array(z.string()) }) });
const tableDescription = z.object({ data: table });
/** The engine's response if its own database is unreachable. */
const unavailable = z.object({ code: z.literal("database_unavailable") });

/**
 * A table as described by its database. Properties other than the columns are present only if they
 * apply.
 */
export type TableDescription = Readonly<z.output<typeof table>>;

/**
 * Databases, tables and columns, as far as a caller may see them.
 *
 * Methods throw a Refusal: `no_grant` or another denial for a database that the caller may not
 * read, whether or not it exists; `schema_not_found` for what does not exist; and the refusals of
 * queries.
 */
export interface SchemaSource<Caller> {
  /** Whether any upstream describes its databases. Undefined if unknown. Never throws. */
  isOffered(caller: Caller, signal: AbortSignal): Promise<Found>;
  listDatabases(caller: Caller, signal: AbortSignal): Promise<string[]>;
  listTables(caller: Caller, database: string, signal: AbortSignal): Promise<string[]>;
  describeTable(
    caller: Caller,
    database: string,
    table: string,
    signal: AbortSignal,
  ): Promise<TableDescription>;
  /**
   * Whether no two rows of the joined tables can be equal in these columns (`column` or
   * `table.column`). False if unknown. Never throws.
   */
  isUniqueOrder(
    caller: Caller,
    database: string,
    tables: readonly string[],
    columns: readonly string[],
    signal: AbortSignal,
  ): Promise<boolean>;
}

export interface SchemaPlace<Caller> {
  readonly holds: (database: string) => boolean;
  /**
   * Sends `GET` of a path, charged to the caller.
   *
   * @throws Refusal as for a query
   */
  readonly get: (caller: Caller, path: string, signal: AbortSignal) => Promise<QueryAnswer>;
}

export interface SchemaSourceOptions<Caller> {
  readonly places: readonly SchemaPlace<Caller>[];
  readonly maySee: (caller: Caller, database: string) => boolean;
  /** @throws Refusal with the reason why the caller may not read the database */
  readonly requireSeen: (caller: Caller, database: string) => void;
}

/** How long a check result stays valid. */
const FRESH_MS = 5000;

/** Whether the upstream describes its databases. Undefined if currently unknown. */
export type Found = boolean | undefined;

/**
 * Whether an upstream describes its databases. It is checked on demand and again after a few
 * seconds, to notice one that came up later or was replaced.
 */
class SchemaOffer<Caller> {
  readonly #check: (caller: Caller, signal: AbortSignal) => Promise<Found>;
  #known: Found;
  #freshUntil = Number.NEGATIVE_INFINITY;

  /** @param check throws a Refusal if the upstream is unreachable */
  constructor(check: (caller: Caller, signal: AbortSignal) => Promise<Found>) {
    this.#check = check;
  }

  /**
   * While the upstream is unreachable, returns the last result, or undefined if there is none.
   * Never rejects, because later requests report why it is unreachable.
   */
  async isMade(caller: Caller, signal: AbortSignal): Promise<Found> {
    if (performance.now() < this.#freshUntil) return this.#known;
    const found = await this.#check(caller, signal).catch(() => undefined);
    if (found !== undefined) {
      this.#known = found;
      this.#freshUntil = performance.now() + FRESH_MS;
    }
    return this.#known;
  }
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    return undefined;
  }
}

/** @throws Refusal unless the response is a success in the documented shape */
function read<Schema extends z.ZodType>(
  schema: Schema,
  { status, body }: QueryAnswer,
): z.output<Schema> {
  if (status === 404 || status === 400) throw new Refusal("schema_not_found");
  const detail = `schema: status ${status}`;
  if (status >= 500) throw new Refusal("upstream_unreachable", { detail });
  const parsed = schema.safeParse(parse(body));
  if (!parsed.success) throw new Refusal("upstream_broken", { detail });
  return parsed.data;
}

function isOffer({ status, body }: QueryAnswer): Found {
  const answer = parse(body);
  if (databaseList.safeParse(answer).success || unavailable.safeParse(answer).success) return true;
  return status < 500 ? false : undefined;
}

/** Combines all upstreams that answer `GET /schema`, as the engine does. */
export function createSchemaSource<Caller>(
  options: SchemaSourceOptions<Caller>,
): SchemaSource<Caller> {
  const { maySee, requireSeen } = options;
  const places = options.places.map(({ holds, get }) => {
    const check = async (caller: Caller, signal: AbortSignal) =>
      isOffer(await get(caller, "/schema", signal));
    return { holds, get, offer: new SchemaOffer<Caller>(check) };
  });

  async function ask(caller: Caller, signal: AbortSignal, database: string, ...table: string[]) {
    requireSeen(caller, database);
    const place = places.find(({ holds }) => holds(database));
    const isOffered = await place?.offer.isMade(caller, signal);
    if (place === undefined || isOffered === false) throw new Refusal("schema_not_found");
    const names = [database, ...table].map(encodeURIComponent);
    return place.get(caller, `/schema/${names.join("/")}`, signal);
  }

  async function describeTable(
    caller: Caller,
    database: string,
    table: string,
    signal: AbortSignal,
  ): Promise<TableDescription> {
    return read(tableDescription, await ask(caller, signal, database, table)).data;
  }

  return {
    describeTable,
    async isOffered(caller, signal) {
      const made = await Promise.all(places.map(({ offer }) => offer.isMade(caller, signal)));
      if (made.includes(true)) return true;
      return made.includes(undefined) ? undefined : false;
    },
    async listDatabases(caller, signal) {
      const found: string[] = [];
      for (const { offer, holds, get } of places) {
        if ((await offer.isMade(caller, signal)) === false) continue;
        const { data } = read(databaseList, await get(caller, "/schema", signal));
        found.push(...data.databases.filter((name) => holds(name) && maySee(caller, name)));
      }
      return found.sort();
    },
    async listTables(caller, database, signal) {
      return read(tableList, await ask(caller, signal, database)).data.tables;
    },
    async isUniqueOrder(caller, database, tables, order, signal) {
      const isUnique = async (table: string) => {
        const { columns } = await describeTable(caller, database, table, signal);
        const isOrdered = ({ name }: { name: string }) =>
          order.includes(name) || order.includes(`${table}.${name}`);
        const key = columns.filter((one) => one.primary_key);
        const isByKey = key.length > 0 && key.every((one) => !one.nullable && isOrdered(one));
        return isByKey || columns.some((one) => one.unique && !one.nullable && isOrdered(one));
      };
      const found = await Promise.all(tables.map(isUnique)).catch(() => [false]);
      return found.every((is) => is);
    },
  };
}
