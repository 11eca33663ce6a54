import { z } from "zod";
import { Refusal } from "../refusal.ts";
import type { QueryAnswer } from "./buffered-answer.ts";

/** A further word about a table; one that another process writes otherwise is none. */
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
/** What the engine answers whose own database is gone. */
const unavailable = z.object({ code: z.literal("database_unavailable") });

/** A table as its database describes it: of all but its columns only what there is to say. */
export type TableDescription = Readonly<z.output<typeof table>>;

/**
 * What databases, tables and columns there are, as far as a caller may see them.
 *
 * Its methods throw a Refusal: `no_grant` or another denial for a database that the caller may not
 * read, whether or not it is there; `schema_not_found` for what is not there; and those of queries.
 */
export interface SchemaSource<Caller> {
  /** Whether any place tells what it holds; undefined if that cannot be said. Throws nothing. */
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
   * Whether no two rows of joined tables can be equal in these columns, each a `column` or
   * `table.column`. False also where it cannot be said; throws nothing.
   */
  isUniqueOrder(
    caller: Caller,
    database: string,
    tables: readonly string[],
    columns: readonly string[],
    signal: AbortSignal,
  ): Promise<boolean>;
}

/** A place where databases live. */
export interface SchemaPlace<Caller> {
  /** True if the database lives there. */
  readonly holds: (database: string) => boolean;
  /** Asks it for `GET` of a path, on the caller's account. @throws Refusal as of a query */
  readonly get: (caller: Caller, path: string, signal: AbortSignal) => Promise<QueryAnswer>;
}

export interface SchemaSourceOptions<Caller> {
  readonly places: readonly SchemaPlace<Caller>[];
  /** True if the caller may read the database. */
  readonly maySee: (caller: Caller, database: string) => boolean;
  /** @throws Refusal that says why the caller may not read the database */
  readonly requireSeen: (caller: Caller, database: string) => void;
}

/** How long it counts that a place tells, or does not tell, what it holds, in milliseconds. */
const FRESH_MS = 5000;

/** What a check has found: whether the place tells; undefined: it cannot be said just now. */
export type Found = boolean | undefined;

/**
 * Whether a place tells what it holds. It is asked when somebody wants to know, and again after a
 * few seconds, so that one that came up later, or was replaced, is noticed.
 */
class SchemaOffer<Caller> {
  readonly #check: (caller: Caller, signal: AbortSignal) => Promise<Found>;
  #known: Found;
  /** `performance.now()` until which that counts. */
  #freshUntil = Number.NEGATIVE_INFINITY;

  /** @param check throws a Refusal for a place that is out of reach */
  constructor(check: (caller: Caller, signal: AbortSignal) => Promise<Found>) {
    this.#check = check;
  }

  /**
   * True if the place tells; while it is out of reach, what was so before, and undefined if
   * nothing was. Never rejects: whoever asks for more learns why it is out of reach.
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

/** @throws Refusal for whatever is no success in the documented shape */
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

/** Tells what there is by asking each place that answers `GET /schema`, as the engine does. */
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
