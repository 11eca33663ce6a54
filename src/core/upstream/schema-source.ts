import { z } from "zod";
import { Refusal, type RefusalCode } from "../base/refusal.ts";
import { parseIfJson } from "../json/exact.ts";
import type { QueryAnswer } from "./answer-stream.ts";

/** An optional key, ignored if another engine writes it differently. */
function lenient<Of extends z.ZodType>(schema: Of) {
  return schema.optional().catch(undefined);
}
const optionalText = lenient(z.string());
const optionalTrue = lenient(z.literal(true));
const column = z.object({
  name: z.string(),
  type: z.string(),
  primary_key: z.boolean(),
  nullable: z.boolean(),
  value_type: optionalText,
  labels: lenient(z.array(z.string())),
  unique: optionalTrue,
  serial: optionalTrue,
  computed: optionalTrue,
  default: optionalText,
  references: optionalText,
  comment: optionalText,
});
const table = z.object({
  columns: z.array(column),
  keys: lenient(z.array(z.array(z.string()))),
  view: optionalTrue,
  rows: lenient(z.number().int().nonnegative()),
  comment: optionalText,
});
export const databaseList = z.object({ data: z.object({ databases: z.array(z.string()) }) });
const tables = z.object({
  tables: z.array(z.string()),
  /** Tables whose names no query can contain. */
  unavailable: lenient(z.array(z.string())),
});
export const tableList = z.object({ data: tables });
export const tableDescription = z.object({ data: table });
const unavailable = z.object({ code: z.literal("database_unavailable") });
const busy = z.object({ code: z.literal("busy") });

type TableList = Readonly<z.output<typeof tables>>;

/** Properties other than the columns are present only if they apply. */
export type TableDescription = Readonly<z.output<typeof table>>;

interface SchemaUpstream<Caller> {
  readonly holds: (database: string) => boolean;
  /** Asks for all databases, the tables of one, or the columns of a table; charged to the caller. */
  readonly get: (
    caller: Caller,
    names: readonly string[],
    signal: AbortSignal,
  ) => Promise<QueryAnswer>;
}

const FRESH_MS = 5000;

/** Types whose values may be arrays or objects. */
const compound = /^jsonb?$|\[\]$|^point$|^geometry/i;

/** Whether an upstream describes its databases. Undefined if unknown. */
type Offer = boolean | undefined;

/**
 * Remembers for a few seconds whether an upstream describes its databases. It may come up later, or
 * be replaced. While it is unreachable, the last result stays, and later requests report why.
 */
function offerAt<Caller>({ get }: SchemaUpstream<Caller>) {
  let known: Offer;
  let freshUntil = Number.NEGATIVE_INFINITY;
  return async (caller: Caller, signal: AbortSignal): Promise<Offer> => {
    if (performance.now() < freshUntil) return known;
    const found = await get(caller, [], signal).then(isOffer, () => undefined);
    if (found === undefined) return known;
    known = found;
    freshUntil = performance.now() + FRESH_MS;
    return found;
  };
}

/** @throws Refusal unless the response is a success in the documented shape */
function read<Schema extends z.ZodType>(
  schema: Schema,
  { status, body }: QueryAnswer,
): z.output<Schema> {
  if (status === 409) {
    // Such as a view of a table that is gone.
    const message = "The database cannot describe this; a query of it says why";
    throw new Refusal("schema_not_found", { message });
  }
  if ([400, 404].includes(status)) throw new Refusal("schema_not_found");
  const detail = `schema: status ${status}`;
  const answer = parseIfJson(body.toString());
  if (status >= 500) {
    const isBusy = busy.safeParse(answer).success;
    throw new Refusal(isBusy ? "busy" : "upstream_unreachable", { detail });
  }
  const parsed = schema.safeParse(answer);
  if (!parsed.success) throw new Refusal("upstream_broken", { detail });
  return parsed.data;
}

function isOffer({ status, body }: QueryAnswer): Offer {
  const answer = parseIfJson(body.toString());
  if (databaseList.safeParse(answer).success || unavailable.safeParse(answer).success) return true;
  return status < 500 ? false : undefined;
}

export type SchemaSource<Caller> = ReturnType<typeof createSchemaSource<Caller>>;

/**
 * Databases, tables and columns of all upstreams that answer `GET /schema`, as the engine does, as
 * far as a caller may see them.
 *
 * Methods throw a Refusal: `no_grant` or another denial for a database that the caller may not
 * read, whether or not it exists; `schema_not_found` for what does not exist; and the refusals of
 * queries.
 *
 * @param options.visibilityDenial why the caller may see nothing of a database; undefined if the caller may
 */
export function createSchemaSource<Caller>(options: {
  readonly upstreams: readonly SchemaUpstream<Caller>[];
  readonly visibilityDenial: (caller: Caller, database: string) => RefusalCode | undefined;
}) {
  const { visibilityDenial } = options;
  const upstreams = options.upstreams.map((one) => ({ ...one, isOffered: offerAt(one) }));

  async function ask(caller: Caller, signal: AbortSignal, database: string, ...table: string[]) {
    const reason = visibilityDenial(caller, database);
    if (reason !== undefined) throw new Refusal(reason);
    const upstream = upstreams.find(({ holds }) => holds(database));
    const isOffered = await upstream?.isOffered(caller, signal);
    if (upstream === undefined || isOffered === false) throw new Refusal("schema_not_found");
    return upstream.get(caller, [database, ...table], signal);
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
    /** Whether any upstream describes its databases. Undefined if unknown. Never throws. */
    async isOffered(caller: Caller, signal: AbortSignal): Promise<Offer> {
      const offers = await Promise.all(upstreams.map(({ isOffered }) => isOffered(caller, signal)));
      if (offers.includes(true)) return true;
      return offers.includes(undefined) ? undefined : false;
    },
    async listDatabases(caller: Caller, signal: AbortSignal): Promise<string[]> {
      const found: string[] = [];
      for (const { isOffered, holds, get } of upstreams) {
        if ((await isOffered(caller, signal)) === false) continue;
        const { data } = read(databaseList, await get(caller, [], signal));
        const isSeen = (name: string) =>
          holds(name) && visibilityDenial(caller, name) === undefined;
        for (const name of data.databases.filter(isSeen)) found.push(name);
      }
      return found.sort();
    },
    async listTables(caller: Caller, database: string, signal: AbortSignal): Promise<TableList> {
      return read(tableList, await ask(caller, signal, database)).data;
    },
    /**
     * Whether no two rows of the joined tables can be equal in these columns (`column`, or
     * `table.column` with the table's name in the query), whose values are no arrays or objects.
     * False if unknown, or for a computed name. Never throws.
     */
    async isUniqueOrder(
      caller: Caller,
      database: string,
      tables: readonly { readonly table: string; readonly as?: string | undefined }[],
      order: readonly string[],
      signal: AbortSignal,
    ): Promise<boolean> {
      const others = new Set(order);
      const isUnique = async ({ table, as = table }: (typeof tables)[number]) => {
        const { columns } = await describeTable(caller, database, table, signal);
        const isOrdered = ({ name }: { name: string }) =>
          order.includes(name) || order.includes(`${as}.${name}`);
        for (const { name, type, value_type = type } of columns) {
          if (compound.test(value_type)) continue;
          others.delete(name);
          others.delete(`${as}.${name}`);
        }
        const key = columns.filter((one) => one.primary_key);
        const isByKey = key.length > 0 && key.every((one) => !one.nullable && isOrdered(one));
        return isByKey || columns.some((one) => one.unique && !one.nullable && isOrdered(one));
      };
      const found = await Promise.all(tables.map(isUnique)).catch(() => [false]);
      return others.size === 0 && found.every((is) => is);
    },
  };
}
