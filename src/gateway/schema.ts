import { decide, type Subject } from "../access/policy.ts";
import { Refusal } from "../refusal.ts";
import type { QueryAnswer } from "../upstream/buffered-answer.ts";
import { fieldLines } from "../upstream/http1/field-lines.ts";
import type { QueryClient } from "../upstream/query-client.ts";
import { createSchemaSource, type SchemaSource } from "../upstream/schema-source.ts";
import { ownHeaders } from "./ask.ts";
import { noteDenial } from "./denial.ts";
import { type Exchange, payerOf } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { traceUpward } from "./request-tracing.ts";
import { subjectOf } from "./subject.ts";

/** Questions of one request that the audit names; the rest are only counted. */
const NOTED_QUESTIONS = 16;
/** Bytes of an answer that tells what there is. */
const LARGEST_ANSWER_BYTES = 4 * 1024 * 1024;
const noBody = Buffer.alloc(0);

/** Who asks; undefined while authentication is off. */
function askerOf({ configuration: { auth } }: Gateway, exchange: Exchange): Subject | undefined {
  return auth.enabled ? (exchange.principal?.subject ?? subjectOf(exchange)) : undefined;
}

/** Asks a place in the caller's turn and name, as a query is. */
async function get(
  gateway: Gateway,
  queries: QueryClient,
  exchange: Exchange,
  path: string,
  signal: AbortSignal,
): Promise<QueryAnswer> {
  const username = askerOf(gateway, exchange)?.username;
  const identity = username === undefined ? undefined : { username, roles: [], databases: [] };
  const headers = { accept: "application/json", ...ownHeaders(gateway, exchange, identity) };
  exchange.forwardedAt ??= performance.now();
  const upward = traceUpward(gateway, exchange, "GET", headers);
  const fields = fieldLines(headers);
  const hold = (bytes: number) => gateway.budget.take(exchange, bytes);
  const limits = { largest: LARGEST_ANSWER_BYTES, hold };
  const user = payerOf(exchange);
  const answer = await queries.ask({
    path,
    user,
    isRead: true,
    body: noBody,
    fields,
    signal,
    ...limits,
  });
  upward?.end(answer.status);
  if (answer.status >= 500) gateway.metrics.upstreamError();
  return answer;
}

/** Notes for the audit what a request asks to know, and whether that was denied. */
async function noted<Answer>(
  exchange: Exchange,
  operation: string,
  [database = "", ...tables]: readonly string[],
  answer: Promise<Answer>,
): Promise<Answer> {
  exchange.operationCount++;
  if (exchange.operations.length < NOTED_QUESTIONS) {
    const asked = { operation, database, tables, role: undefined, entry: undefined };
    exchange.operations = [...exchange.operations, asked];
  }
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Refusal) noteDenial(exchange, error.code, error.status);
    throw error;
  }
}

/** What there is behind the gateway, for its own routes and for `/mcp`. */
export function openSchema(gateway: Gateway): SchemaSource<Exchange> {
  function requireSeen(exchange: Exchange, database: string): void {
    const subject = askerOf(gateway, exchange);
    if (subject === undefined) return;
    const { reason } = decide(gateway.access.snapshot, subject, "SELECT", database);
    if (reason !== "allowed") throw new Refusal(reason);
  }
  const source = createSchemaSource<Exchange>({
    places: gateway.routing.places.map(({ holds, queries }) => ({
      holds,
      get: (exchange, path, signal) => get(gateway, queries, exchange, path, signal),
    })),
    requireSeen,
    maySee(exchange, database) {
      const subject = askerOf(gateway, exchange);
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
