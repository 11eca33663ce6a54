/**
 * The one way from a question to an answer, for `POST /query`, the tools of `/mcp` and `/schema`:
 * route to a database, judge, note, add headers and trace, and send up.
 */
import type { UpwardTrace } from "../observe/request-trace.ts";
import { isReadOnly, type Query } from "../query/query.ts";
import { QueryRefused } from "../query/refusal.ts";
import { LONG_BODY, scan, scanInSlices } from "../query/scan.ts";
import { Refusal } from "../refusal.ts";
import type { QueryAnswer } from "../upstream/buffered-answer.ts";
import { gatewayHeaders, type Identity } from "../upstream/headers.ts";
import { givenUp, type QueryClient } from "../upstream/query-client.ts";
import { fieldLines, inForm } from "../upstream/query-form.ts";
import { type Exchange, payerOf } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { judge } from "./judge.ts";

/** A request that may go up, and how. */
export interface UpwardRequest {
  readonly queries: QueryClient;
  /** Set for `GET` of a path instead of a query. */
  readonly path?: string;
  readonly body: Buffer;
  /** The lines of its header fields. */
  readonly fields: string;
  readonly isRead: boolean;
  readonly trace: UpwardTrace | undefined;
}

/** Header fields besides those that the gateway adds to all that goes up. */
type OwnHeaders = Record<string, string | string[]>;

function headed(
  gateway: Gateway,
  exchange: Exchange,
  method: "GET" | "POST",
  own: OwnHeaders,
  identity: Identity | undefined,
): Pick<UpwardRequest, "fields" | "trace"> {
  const { requestId, peer } = exchange;
  const { forwardedFor, proto, host } = peer;
  const trace = exchange.goUp({ method, headers: own, target: gateway.tracing?.upstream });
  const added = gatewayHeaders({ requestId, forwardedFor, proto, host, identity });
  // No name is in both: the configuration lets none through that the gateway sets.
  return { fields: fieldLines(own) + fieldLines(added), trace };
}

/**
 * Judges a query, and notes it for the audit.
 *
 * @param own what it takes along, to which the trace adds its own
 * @throws Refusal saying which rule denies it
 */
export function admit(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  query: Query,
  own: OwnHeaders,
): UpwardRequest {
  const queries = gateway.routing.queriesOf(query);
  const identity = judge(gateway, exchange, query);
  exchange.verdict.allow();
  const { fields, trace } = headed(gateway, exchange, "POST", own, identity);
  const form = gateway.configuration.upstream.query_form;
  return { queries, body: inForm(form, body, query), fields, isRead: isReadOnly(query), trace };
}

/** How an answer is held that the gateway itself has a use for. */
export interface HoldOptions {
  /** Gives the query up. */
  readonly signal: AbortSignal;
  /** Bytes of the answer that are held; the user's account bears them until it has gone out. */
  readonly largest: number;
}

/** Sends a request up in the caller's turn, and holds the answer. @throws Refusal */
async function hold(
  gateway: Gateway,
  exchange: Exchange,
  { queries, trace, ...request }: UpwardRequest,
  options: HoldOptions,
): Promise<QueryAnswer> {
  const answer = await queries.ask({
    ...request,
    ...options,
    user: payerOf(exchange),
    hold: (bytes) => gateway.budget.take(exchange, bytes),
  });
  trace?.end(answer.status);
  if (answer.status >= 500) gateway.metrics.upstreamError();
  return answer;
}

/** The upstream's own credential, if it has one: the caller's is none of a request that is made here. */
function credentialOf({ headers: { authorization } }: Gateway): Record<string, string> {
  return authorization === undefined ? {} : { authorization };
}

/**
 * Judges, notes and forwards a query that a tool asks for its caller, as `POST /query` does, and
 * gives back the answer.
 *
 * @throws QueryRefused, or a Refusal, which are noted too
 */
export async function ask(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  options: HoldOptions,
): Promise<QueryAnswer> {
  try {
    const { grammar } = gateway;
    const isLong = body.length >= LONG_BODY;
    const isWanted = () => !options.signal.aborted;
    const query = isLong ? await scanInSlices(body, grammar, isWanted) : scan(body, grammar);
    if (query === undefined || !isWanted()) throw givenUp();
    const own = { "content-type": "application/json", ...credentialOf(gateway) };
    return await hold(gateway, exchange, admit(gateway, exchange, body, query, own), options);
  } catch (error) {
    if (error instanceof Refusal) exchange.verdict.deny(error.code, error.status);
    if (error instanceof QueryRefused) exchange.verdict.deny(error.code, 400);
    throw error;
  }
}

const noBody = Buffer.alloc(0);

/** Asks a place what there is, in the caller's name. @throws Refusal */
export function askFor(
  path: string,
  gateway: Gateway,
  exchange: Exchange,
  queries: QueryClient,
  options: HoldOptions,
): Promise<QueryAnswer> {
  const { subject } = exchange.authenticated;
  const identity = subject && { username: subject.username, roles: [], databases: [] };
  const own = { accept: "application/json", ...credentialOf(gateway) };
  const { fields, trace } = headed(gateway, exchange, "GET", own, identity);
  const request = { queries, path, body: noBody, fields, isRead: true, trace };
  return hold(gateway, exchange, request, options);
}
