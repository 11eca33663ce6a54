import { decide } from "../access/policy.ts";
import { Refusal } from "../refusal.ts";
import { createSchemaSource, type SchemaSource } from "../upstream/schema-source.ts";
import type { Exchange } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { askFor } from "./query-flow.ts";

/** Questions of one request that the audit names; the rest are only counted. */
const NOTED_QUESTIONS = 16;
/** Bytes of an answer that tells what there is. */
const LARGEST_ANSWER_BYTES = 4 * 1024 * 1024;
/** Notes for the audit what a request asks to know, and whether that was denied. */
async function noted<Answer>(
  exchange: Exchange,
  operation: string,
  [database = "", ...tables]: readonly string[],
  answer: Promise<Answer>,
): Promise<Answer> {
  const { verdict } = exchange;
  const { operations, count } = verdict;
  const question = { operation, database, tables, role: undefined, entry: undefined };
  const isNoted = operations.length < NOTED_QUESTIONS;
  verdict.ask(isNoted ? [...operations, question] : operations, count + 1);
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Refusal) verdict.deny(error.code, error.status);
    throw error;
  }
}

/** What there is behind the gateway, for its own routes and for `/mcp`. */
export function openSchema(gateway: Gateway): SchemaSource<Exchange> {
  function requireSeen(exchange: Exchange, database: string): void {
    const { subject } = exchange.authenticated;
    if (subject === undefined) return;
    const { reason } = decide(gateway.access.snapshot, subject, "SELECT", database);
    if (reason !== "allowed") throw new Refusal(reason);
  }
  const source = createSchemaSource<Exchange>({
    places: gateway.routing.places.map(({ holds, queries }) => ({
      holds,
      get: (exchange, path, signal) =>
        askFor(path, gateway, exchange, queries, { signal, largest: LARGEST_ANSWER_BYTES }),
    })),
    requireSeen,
    maySee(exchange, database) {
      const { subject } = exchange.authenticated;
      if (subject === undefined) return true;
      return decide(gateway.access.snapshot, subject, "SELECT", database).allowed;
    },
  });
  return {
    isOffered: (exchange, signal) => source.isOffered(exchange, signal),
    listDatabases: (exchange, signal) =>
      noted(exchange, "ListDatabases", [], source.listDatabases(exchange, signal)),
    listTables: (exchange, database, signal) =>
      noted(exchange, "ListTables", [database], source.listTables(exchange, database, signal)),
    describeTable: (exchange, database, table, signal) =>
      noted(
        exchange,
        "DescribeTable",
        [database, table],
        source.describeTable(exchange, database, table, signal),
      ),
  };
}
