import { seeTable, visibilityDenial } from "../../core/access/policy.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { cutOnChange, sendSuccess } from "../../core/http/answer.ts";
import { type Exchange, queryOrigin, requireStillAllowed } from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { isNarrowed, requestSchema } from "../../core/http/query.ts";
import { databaseParameter, type Route, route, tableParameter } from "../../core/http/route.ts";
import {
  createSchemaSource,
  type SchemaSource,
  type TableDescription,
} from "../../core/upstream/schema-source.ts";

/** The maximum number of schema lookups per request in the audit. Further ones are only counted. */
const MAX_AUDITED_LOOKUPS = 16;
const LARGEST_ANSWER_BYTES = 4 * 1024 * 1024;

async function audited<Answer>(
  exchange: Exchange,
  operation: string,
  [database = "", ...tables]: readonly string[],
  answer: Promise<Answer>,
): Promise<Answer> {
  const { verdict } = exchange;
  const { operations, count } = verdict;
  const lookup = { operation, database, tables, role: undefined, entry: undefined };
  const isAudited = operations.length < MAX_AUDITED_LOOKUPS;
  verdict.record(isAudited ? [...operations, lookup] : operations, count + 1);
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Refusal) verdict.deny(error.code, error.status);
    throw error;
  }
}

export function openSchema(gateway: Gateway): SchemaSource<Exchange> {
  const { access } = gateway;

  function whyHidden(exchange: Exchange, database: string) {
    const { subject } = exchange.authenticated;
    return subject && visibilityDenial(access.snapshot, subject, database, queryOrigin(exchange));
  }

  /** The visible part of a table, the reason for a denial, or undefined if all of it is visible. */
  function visiblePart(exchange: Exchange, database: string, table: string) {
    const { subject } = exchange.authenticated;
    if (subject === undefined || !isNarrowed(gateway, exchange)) return undefined;
    return seeTable(access.snapshot, subject, database, table, queryOrigin(exchange));
  }

  const source = createSchemaSource<Exchange>({
    upstreams: gateway.routing.upstreams.map(({ holds, database }) => ({
      holds,
      get: (exchange, names, signal) =>
        requestSchema(names, gateway, exchange, database, {
          signal,
          largest: LARGEST_ANSWER_BYTES,
        }),
    })),
    visibilityDenial: whyHidden,
  });

  async function listTables(exchange: Exchange, database: string, signal: AbortSignal) {
    const found = await source.listTables(exchange, database, signal);
    const isVisible = (table: string) => typeof visiblePart(exchange, database, table) !== "string";
    const { tables, unavailable } = found;
    const areAllVisible = !isNarrowed(gateway, exchange);
    return {
      tables: tables.filter(isVisible),
      ...(unavailable && areAllVisible ? { unavailable } : {}),
    };
  }

  async function describeTable(
    exchange: Exchange,
    database: string,
    table: string,
    signal: AbortSignal,
  ): Promise<TableDescription> {
    const seen = visiblePart(exchange, database, table);
    if (typeof seen === "string") {
      const hidden = whyHidden(exchange, database);
      if (hidden !== undefined) throw new Refusal(hidden);
      const message = `There is no grant for ${database}.${table}`;
      throw new Refusal(seen, seen === "no_grant" ? { message } : {});
    }
    const described = await source.describeTable(exchange, database, table, signal);
    if (seen === undefined) return described;
    const { columns, keys, rows, ...others } = described;
    return {
      ...others,
      columns: columns
        .filter(({ name }) => seen.sees(name))
        .map(({ references, ...column }) => {
          const [other = "", name = ""] = references?.split(".") ?? [];
          const target = visiblePart(exchange, database, other);
          const isSeen = typeof target === "object" && target.sees(name);
          return isSeen ? { ...column, references } : column;
        }),
      ...(keys === undefined ? {} : { keys: keys.filter((key) => key.every(seen.sees)) }),
      ...(rows === undefined || !seen.seesAllRows ? {} : { rows }),
    };
  }

  return {
    isOffered: (exchange, signal) => source.isOffered(exchange, signal),
    listDatabases: (exchange, signal) =>
      audited(exchange, "ListDatabases", [], source.listDatabases(exchange, signal)),
    listTables: (exchange, database, signal) =>
      audited(exchange, "ListTables", [database], listTables(exchange, database, signal)),
    describeTable: (exchange, database, table, signal) =>
      audited(
        exchange,
        "DescribeTable",
        [database, table],
        describeTable(exchange, database, table, signal),
      ),
    // The gateway's own lookup, which is not audited.
    isUniqueOrder: source.isUniqueOrder,
  };
}

type FindSchema = (
  schema: SchemaSource<Exchange>,
  exchange: Exchange,
  signal: AbortSignal,
) => Promise<object>;

export function schemaRoutes(schema: SchemaSource<Exchange> | undefined): Route[] {
  const routeTo = (pattern: string, find: FindSchema): Route =>
    route(pattern, {
      GET: {
        authentication: "data",
        async handle(gateway, exchange) {
          const client = new AbortController();
          exchange.response.once("close", () => client.abort());
          cutOnChange(gateway, exchange);
          const isOffered = await schema?.isOffered(exchange, client.signal);
          if (schema === undefined || isOffered === false) throw new Refusal("schema_not_offered");
          const data = await find(schema, exchange, client.signal);
          requireStillAllowed(exchange);
          exchange.verdict.allow();
          sendSuccess(exchange, 200, { data });
        },
      },
    });
  return [
    routeTo("/schema", async (source, exchange, signal) => ({
      databases: await source.listDatabases(exchange, signal),
    })),
    routeTo("/schema/:database", (source, exchange, signal) =>
      source.listTables(exchange, databaseParameter(exchange), signal),
    ),
    routeTo("/schema/:database/:table", (source, exchange, signal) => {
      const [database, table] = [databaseParameter(exchange), tableParameter(exchange)];
      return source.describeTable(exchange, database, table, signal);
    }),
  ];
}
