import type { Query } from "../../query/query.ts";
import { LONG_BODY } from "../../query/scan.ts";
import { Refusal } from "../../refusal.ts";
import { queryHeaders } from "../../upstream/headers.ts";
import { commonHeaders, sendSuccess } from "../answer.ts";
import { APPROVAL_HEADER } from "../approval-flow.ts";
import { requireStillGood } from "../authentication.ts";
import { type Exchange, payerOf } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import { databaseParameter, tableParameter } from "../parameters.ts";
import { admit, noteReport, readLongQuery, readQuery } from "../query-flow.ts";
import { reject } from "../rejection.ts";
import { countCall, countQuery } from "../request-limits.ts";
import type { Endpoint } from "../route.ts";
import type { UpwardRequest } from "../upward-request.ts";

/** Sends a query up, and its answer to the client. */
function forward(gateway: Gateway, exchange: Exchange, request: UpwardRequest): void {
  request.queries.forward({
    sink: exchange,
    user: payerOf(exchange),
    body: request.body,
    fields: request.fields,
    isRead: request.isRead,
    judgeAgain: request.judgeAgain,
    answerHeaders: commonHeaders(exchange),
    onHeaders: noteReport(gateway, exchange),
    fail: (error) => reject(gateway, exchange, error),
  });
}

function judgeAndForward(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  query: Query,
): Promise<void> | void {
  const { headers } = exchange.request;
  const approval = headers[APPROVAL_HEADER]?.toString();
  const options = { own: queryHeaders(headers, gateway.headers), approval };
  const admitted = admit(gateway, exchange, body, query, options);
  if (!(admitted instanceof Promise)) return forward(gateway, exchange, admitted);
  return admitted.then((request) => forward(gateway, exchange, request));
}

/** Counts a request that asks nothing that could be read. @throws `error`, or Refusal `rate_limited` */
async function countUnread(gateway: Gateway, exchange: Exchange, error: unknown): Promise<never> {
  requireStillGood(gateway, exchange);
  await countCall(gateway, exchange);
  throw error;
}

async function handleLong(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> {
  const isWanted = () => !exchange.response.destroyed;
  const reading = readLongQuery(gateway, exchange, body, isWanted);
  const query = await reading.catch((error) => countUnread(gateway, exchange, error));
  if (query === undefined || !isWanted()) return;
  requireStillGood(gateway, exchange);
  await countQuery(gateway, exchange, query);
  await judgeAndForward(gateway, exchange, body, query);
}

function handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> | void {
  if (body.length >= LONG_BODY) return handleLong(gateway, exchange, body);
  let query: Query;
  try {
    query = readQuery(gateway, exchange, body);
  } catch (error) {
    return countUnread(gateway, exchange, error);
  }
  const counting = countQuery(gateway, exchange, query);
  if (counting === undefined) return judgeAndForward(gateway, exchange, body, query);
  return counting.then(() => judgeAndForward(gateway, exchange, body, query));
}

/** `POST /query`: what is asked is read, judged, and forwarded byte for byte. */
export function query(bodyLimit: number): Endpoint {
  return { authentication: "data", bodyLimit, handle };
}

/** Answers with what is found, unless the client leaves before that. */
function schemaRoute(
  find: (gateway: Gateway, exchange: Exchange, signal: AbortSignal) => Promise<object>,
): Endpoint {
  return {
    authentication: "data",
    async handle(gateway, exchange) {
      const client = new AbortController();
      exchange.whenClosed = () => client.abort();
      const isOffered = await gateway.schema.isOffered(exchange, client.signal);
      if (isOffered === false) throw new Refusal("schema_not_offered");
      const data = await find(gateway, exchange, client.signal);
      exchange.verdict.allow();
      sendSuccess(exchange, 200, { data });
    },
  };
}

/** `GET /schema`: the databases that the caller may read. */
export const databases = schemaRoute(async ({ schema }, exchange, signal) => ({
  databases: await schema.listDatabases(exchange, signal),
}));

/** `GET /schema/<database>`: its tables. */
export const tables = schemaRoute(async ({ schema }, exchange, signal) => ({
  tables: await schema.listTables(exchange, databaseParameter(exchange), signal),
}));

/** `GET /schema/<database>/<table>`: its columns, and what else its database tells of it. */
export const table = schemaRoute(({ schema }, exchange, signal) =>
  schema.describeTable(exchange, databaseParameter(exchange), tableParameter(exchange), signal),
);
