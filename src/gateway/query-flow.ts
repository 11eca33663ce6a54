/**
 * The one way from a question to an answer, for `POST /query`, the tools of `/mcp` and `/schema`:
 * route to a database, judge, note, add headers and trace, and send up.
 */
import { isDeepStrictEqual } from "node:util";
import type { Query } from "../query/query.ts";
import { QueryRefused } from "../query/refusal.ts";
import { LONG_BODY, scan, scanInSlices } from "../query/scan.ts";
import { Refusal } from "../refusal.ts";
import type { QueryAnswer } from "../upstream/buffered-answer.ts";
import { engineReportOf, traceHeaders } from "../upstream/headers.ts";
import { givenUp, type QueryClient } from "../upstream/query-client.ts";
import { type Asked, withFilters } from "./added-filters.ts";
import { requireApproval } from "./approval-flow.ts";
import { requireStillGood } from "./authentication.ts";
import { type Exchange, payerOf } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { isNarrowed, judge, type NeededApproval } from "./judge.ts";
import { countQuery } from "./request-limits.ts";
import {
  headed,
  type OwnHeaders,
  type RoutedQuery,
  requestFor,
  type UpwardRequest,
} from "./upward-request.ts";

/** Reads a query: in detail for whoever is narrowed, else as far as the audit tells it. @throws QueryRefused */
export function readQuery(gateway: Gateway, exchange: Exchange, body: Buffer): Query {
  return scan(body, gateway.queries.grammar, isNarrowed(gateway, exchange) || "shape");
}

/**
 * Reads a long query in slices, between which others are served.
 *
 * @returns undefined if nobody waits for it any more
 * @throws QueryRefused
 */
export function readLongQuery(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  isWanted: () => boolean,
): Promise<Query | undefined> {
  const collects = isNarrowed(gateway, exchange) || "shape";
  return scanInSlices(body, gateway.queries.grammar, isWanted, collects);
}

/** The request of a query once its approval is used up, by which it is sent up once. @throws Refusal */
async function approvedRequest(
  gateway: Gateway,
  exchange: Exchange,
  routed: RoutedQuery,
  needed: NeededApproval,
  { own, approval: id }: AdmitOptions,
): Promise<UpwardRequest> {
  const { asked } = routed;
  const { touched } = await requireApproval(gateway, exchange, { ...asked, needed }, id);
  requireStillGood(gateway, exchange);
  // What has changed meanwhile, the filters too, was not approved.
  const judged = judge(gateway, exchange, asked.query);
  if (judged.approval?.basis !== needed.basis) throw new Refusal("approval_void");
  const limits = touched === undefined ? judged.limits : [...judged.limits, { touched }];
  const request = requestFor(gateway, exchange, routed, { ...judged, limits }, own);
  return { ...request, isRead: false };
}

/** What a query comes with. */
export interface AdmitOptions {
  /** What it takes along, to which the trace adds its own. */
  readonly own: OwnHeaders;
  /** The id of the approval that it shows. */
  readonly approval: string | undefined;
}

/**
 * Judges a query, adds what its caller's row filters demand, and notes it for the audit. What needs
 * an approval is looked up first.
 *
 * @throws Refusal saying which rule denies it
 */
export function admit(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  query: Query,
  options: AdmitOptions,
): UpwardRequest | Promise<UpwardRequest> {
  const asked = { body, query };
  // What cannot be sent anywhere is refused before it is judged.
  const queries = gateway.routing.queriesOf(query);
  const judged = judge(gateway, exchange, query);
  const judgeAgain = () => {
    requireStillGood(gateway, exchange);
    if (isDeepStrictEqual(judge(gateway, exchange, query), judged)) return;
    const detail = "the caller's rights changed while the query waited for a connection";
    throw new Refusal("busy", { detail, retryAfter: 1 });
  };
  const send = (sent: Asked) => {
    const routed = { asked, queries, sent, judgeAgain };
    return judged.approval === undefined
      ? requestFor(gateway, exchange, routed, judged, options.own)
      : approvedRequest(gateway, exchange, routed, judged.approval, options);
  };
  const sent = withFilters(gateway, asked, judged.decisions);
  if (!(sent instanceof Promise)) return send(sent);
  return sent.then((read) => {
    requireStillGood(gateway, exchange);
    return send(read);
  });
}

/** How an answer is held that the gateway itself has a use for. */
export interface HoldOptions {
  /** Gives the query up. */
  readonly signal: AbortSignal;
  /** Bytes of the answer that are held; the user's account bears them until it has gone out. */
  readonly largest: number;
  /** The id of the approval that the query shows. */
  readonly approval?: string | undefined;
}

/** Notes for the audit what the engine tells of rows and limits; no other upstream is believed. */
export function noteReport(
  { queries }: Gateway,
  { verdict }: Exchange,
): ((headers: readonly string[]) => void) | undefined {
  if (!queries.isEngine) return undefined;
  return (headers) => {
    verdict.report = engineReportOf(headers);
    if (verdict.report.denied !== undefined) verdict.deny(verdict.report.denied, 409);
  };
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
  if (request.path === undefined) noteReport(gateway, exchange)?.(answer.headers);
  if (answer.status >= 500) gateway.metrics?.upstreamError();
  return answer;
}

/** The upstream's own credential, if it has one: the caller's is none of a request that is made here. */
export function credentialOf({
  headers: { authorization },
}: Pick<Gateway, "headers">): Record<string, string> {
  return authorization === undefined ? {} : { authorization };
}

/**
 * Judges, notes and forwards a query that a tool asks for its caller, as `POST /query` does, and
 * gives back the answer, with the row filters that were added to the query.
 *
 * @throws QueryRefused, or a Refusal, which are noted too
 */
export async function ask(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  options: HoldOptions,
): Promise<QueryAnswer & { readonly filters: readonly string[] }> {
  try {
    const isLong = body.length >= LONG_BODY;
    const isWanted = () => !options.signal.aborted;
    const query = isLong
      ? await readLongQuery(gateway, exchange, body, isWanted)
      : readQuery(gateway, exchange, body);
    if (query === undefined || !isWanted()) throw givenUp();
    await countQuery(gateway, exchange, query);
    const trace = traceHeaders(exchange.request.headers);
    const own = { "content-type": "application/json", ...trace, ...credentialOf(gateway) };
    const { approval } = options;
    const request = await admit(gateway, exchange, body, query, { own, approval });
    const answer = await hold(gateway, exchange, request, options);
    return { ...answer, filters: exchange.verdict.filters };
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
  const own = {
    accept: "application/json",
    ...traceHeaders(exchange.request.headers),
    ...credentialOf(gateway),
  };
  const { fields, trace } = headed(gateway, exchange, "GET", own, identity);
  const request = { queries, path, body: noBody, fields, isRead: true, trace };
  return hold(gateway, exchange, request, options);
}
