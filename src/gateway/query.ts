import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { decideQuery } from "../access/policy.ts";
import { limitsText } from "../access/query-limits.ts";
import { writeRateLimit } from "../access/records.ts";
import {
  type ApprovalRule,
  type BytewiseColumns,
  type Decision,
  mayBeNarrowed,
  type QueryDecision,
  type QueryLimit,
  type QueryOrigin,
  type RateWindow,
  rateWindowsOf,
  rulesFor,
  seesSchema,
} from "../access/rights.ts";
import { filterAdditions } from "../access/row-filter.ts";
import {
  type Approval,
  type ApprovalBinding,
  type ApprovalState,
  type ApprovalStore,
  MOST_PENDING,
  mayApprove,
} from "../approvals/approval.ts";
import type { UpwardTrace } from "../observe/request-trace.ts";
import { type Access, isReadOnly, type Query } from "../query/query.ts";
import { QueryRefused } from "../query/refusal.ts";
import { LONG_BODY, scan, scanInSlices } from "../query/scan.ts";
import { splice } from "../query/splice.ts";
import { Refusal, type RefusalCode } from "../refusal.ts";
import type { QueryAnswer } from "../upstream/buffered-answer.ts";
import {
  engineReportOf,
  gatewayHeaders,
  type Identity,
  queryHeaders,
  traceHeaders,
} from "../upstream/headers.ts";
import { givenUp, type QueryClient } from "../upstream/query-client.ts";
import { fieldLines, inForm } from "../upstream/query-form.ts";
import { commonHeaders, reject, sendSuccess } from "./answer.ts";
import { requireStillGood } from "./authentication.ts";
import { type Exchange, payerOf } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { databaseParameter, tableParameter } from "./parameters.ts";
import type { Endpoint } from "./route.ts";

/** Row filters of the caller that a query lacks are put into its bytes. */

/** A query and its bytes. */
export interface Asked {
  readonly body: Buffer;
  readonly query: Query;
}

/**
 * The query with the row filters that it lacks, which is read again, a long one in slices: it must
 * be of the grammar, no longer than any body, and ask for the same tables.
 *
 * @returns what was asked itself if it lacks none
 * @throws QueryRefused, or Refusal `body_too_large`
 */
export function withFilters(
  { queries: { grammar }, configuration }: Pick<Gateway, "queries" | "configuration">,
  asked: Asked,
  decisions: readonly Decision[],
): Asked | Promise<Asked> {
  const additions = filterAdditions(asked.query, decisions);
  if (additions.length === 0) return asked;
  const body = splice(asked.body, additions);
  if (body.length > configuration.server.max_body_bytes) throw new Refusal("body_too_large");
  const isLong = body.length >= LONG_BODY;
  if (!isLong) return { body, query: requireSamePlaces(scan(body, grammar), asked.query) };
  return scanInSlices(body, grammar).then((query) => ({
    body,
    query: requireSamePlaces(query, asked.query),
  }));
}

/** @throws Error if a query asks for something else than another does */
function requireSamePlaces(query: Query | undefined, { accesses: others }: Query): Query {
  const isSame =
    query?.accesses.length === others.length &&
    query.accesses.every((access, at) => isSamePlace(access, others[at]));
  if (!isSame) throw new Error("A query asks for other tables once filters are added");
  return query;
}

function isSamePlace({ operation, database, tables }: Access, other: Access | undefined): boolean {
  return (
    operation === other?.operation &&
    database === other.database &&
    tables.length === other.tables.length &&
    tables.every((table, at) => table === other.tables[at])
  );
}

/** Operations of one query that the audit names; the rest are only counted. */
const AUDITED_OPERATIONS = 16;

/** Bytes of the shapes of one query. */
const LONGEST_SHAPES = 2048;
/** Bytes below which a shape says too little to be noted. */
const SHORTEST_SHAPE = 32;

function note(exchange: Exchange, { accesses }: Query, decisions: readonly Decision[]): void {
  let left = LONGEST_SHAPES;
  const operations = accesses
    .slice(0, AUDITED_OPERATIONS)
    .map(({ operation, database, tables, detail }, at) => {
      const { role, entry, boundary } = decisions[at] ?? { role: undefined, entry: undefined };
      const shape = left < SHORTEST_SHAPE ? "" : (detail?.shape(left) ?? "");
      left -= Buffer.byteLength(shape);
      return { operation, database, tables, role, entry, boundary, shape: shape || undefined };
    });
  exchange.verdict.ask(operations, accesses.length);
}

/** What the upstream is told: each database once, in the query's order, with the role there. */
function identityOf(username: string, query: Query, decisions: readonly Decision[]): Identity {
  const [access, ...others] = query.accesses;
  if (access !== undefined && others.length === 0) {
    return { username, roles: [decisions[0]?.role ?? ""], databases: [access.database] };
  }
  const roles = new Map<string, string>();
  for (const [at, { database }] of query.accesses.entries()) {
    roles.set(database, decisions[at]?.role ?? "");
  }
  return { username, roles: [...roles.values()], databases: [...roles.keys()] };
}

/** Where a request came in, and by which OAuth client, as permission boundaries tell callers apart. */
export function originOf({ authenticated: { principal } }: Exchange): QueryOrigin {
  return principal === undefined ? direct : { via: "mcp", client: principal.clientId };
}

const direct: QueryOrigin = { via: "query" };

/** True if more than its role judges what the caller asks. */
export function isNarrowed({ access }: Gateway, exchange: Exchange): boolean {
  const { subject } = exchange.authenticated;
  return (
    subject !== undefined && mayBeNarrowed(access.snapshot, subject.username, originOf(exchange))
  );
}

/** What the engine is told to keep; `touched` is the digest of the rows that an approval is for. */
type EngineLimit = QueryLimit | BytewiseColumns | { readonly touched: string };

/** Why somebody has to approve a query. */
interface NeededApproval {
  readonly rules: readonly ApprovalRule[];
  /** What decides, as text. */
  readonly basis: string;
}

/** True if something that the caller may do has to be approved. */
export function mayNeedApproval({ access }: Gateway, exchange: Exchange): boolean {
  const { subject } = exchange.authenticated;
  if (subject === undefined) return false;
  return rulesFor(access.snapshot, subject.username, originOf(exchange)).some(
    ({ requireApproval }) => requireApproval !== undefined,
  );
}

/** A query that may go up, once it is approved where that is needed. */
interface Judged {
  readonly decisions: readonly Decision[];
  /** For whom and by which right it goes up; undefined while authentication is off. */
  readonly identity: Identity | undefined;
  /** What the database must keep. */
  readonly limits: readonly EngineLimit[];
  /** Set if somebody has to approve it. */
  readonly approval: NeededApproval | undefined;
  /** False if something of the schema is hidden from the caller, also in errors. */
  readonly seesSchema: boolean;
}

/** @throws Refusal that tells the caller by which rule, and what else to do */
export function requireAllowed({ reason, message }: Decision): void {
  if (reason !== "allowed") throw new Refusal(reason, message === undefined ? {} : { message });
}

/** The refusal that tells the caller by which rule, and in which element of a Batch. */
function refusalOf({ batch }: Query, { decisions, reason }: QueryDecision): Refusal {
  const { message } = decisions.at(-1) ?? {};
  const code = reason === "allowed" ? "no_grant" : reason;
  const told = message === undefined ? {} : { message };
  if (!batch) return new Refusal(code, told);
  const element = decisions.length - 1;
  const detail = `Batch[${element}]: ${code}`;
  return new Refusal("batch_member_denied", {
    ...told,
    detail,
    members: { element, reason: code },
  });
}

/**
 * Compares what a query asks for with what its caller may do, and notes both for the audit. While
 * authentication is off, there is nobody to judge.
 *
 * @throws Refusal saying which rule denies it
 */
function judge({ access, queries }: Gateway, exchange: Exchange, query: Query): Judged {
  const { subject } = exchange.authenticated;
  if (subject === undefined) {
    note(exchange, query, []);
    return {
      decisions: [],
      identity: undefined,
      limits: [],
      approval: undefined,
      seesSchema: true,
    };
  }
  const context = { ...originOf(exchange), now: Date.now(), isEngine: queries.isEngine };
  const decided = decideQuery(access.snapshot, subject, query, context);
  const { allowed, decisions, limits, bytewise, reason } = decided;
  const { approvals: rules, basis = "" } = decided;
  const isAsked = reason === "approval_required";
  note(exchange, query, decisions);
  if (!allowed && !isAsked) throw refusalOf(query, decided);
  const { username } = subject;
  return {
    decisions,
    identity: identityOf(username, query, decisions),
    limits: bytewise === undefined ? limits : [...limits, ...bytewise],
    approval: isAsked ? { rules, basis } : undefined,
    seesSchema: query.accesses.every(({ database }) =>
      seesSchema(access.snapshot, username, database),
    ),
  };
}

/** Approvals on a query's way: asked for where a rule demands one, and used up once. */

/** The header by which `POST /query` shows an approval. */
const APPROVAL_HEADER = "x-gatehouse-approval";

/** RFC 9562, section 4. */
const uuid = /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/;

/** A query that needs an approval. */
interface Needing {
  readonly body: Buffer;
  readonly query: Query;
  readonly needed: NeededApproval;
}

function sha256(content: Buffer | string): string {
  return createHash("sha256").update(content).digest("hex");
}

function bindingOf(exchange: Exchange, { body, needed }: Needing): ApprovalBinding {
  const { via, client } = originOf(exchange);
  const { subject } = exchange.authenticated;
  if (subject === undefined) throw new Error("An approval is needed of nobody");
  const { username } = subject;
  return { username, via, client, bodyHash: sha256(body), basisHash: sha256(needed.basis) };
}

/** What tells the caller that an approval is pending, where it is decided, and what to do once it is given. */
function pending({ consoleUrl }: Gateway, { id, expires }: Approval): Refusal {
  const until = new Date(expires).toISOString();
  const page = consoleUrl === undefined ? {} : { url: `${consoleUrl}/approvals/${id}` };
  const message = `Somebody has to approve this until ${until}; then send the same bytes again with X-Gatehouse-Approval: ${id}`;
  return new Refusal("approval_required", {
    message,
    members: { approval: { id, ...page, expires: until } },
  });
}

async function requestApproval(
  gateway: Gateway,
  exchange: Exchange,
  needing: Needing,
  store: ApprovalStore,
): Promise<Refusal> {
  const { body, query, needed } = needing;
  const operations = query.accesses
    .slice(0, AUDITED_OPERATIONS)
    .map(({ operation, database, tables }) => ({ operation, database, tables: [...tables] }));
  const request = {
    ...bindingOf(exchange, needing),
    body,
    operations,
    operationCount: query.accesses.length,
    rules: needed.rules,
    requestId: exchange.requestId,
  };
  const asked = await store.ask(request, gateway.configuration.approvals.wait * 1000);
  if (asked !== undefined) {
    exchange.verdict.approval = asked.id;
    return pending(gateway, asked);
  }
  const message = `${MOST_PENDING} approvals of the caller wait to be decided, which is the most`;
  return new Refusal("too_many_approvals", { message });
}

/** Why an approval that is not good lifts nothing. */
function refusalFor({ state, reason }: Pick<Approval, "state" | "reason">): Refusal {
  const codes: Record<ApprovalState, RefusalCode> = {
    pending: "approval_required",
    approved: "approval_used",
    denied: "approval_denied",
    expired: "approval_expired",
    used: "approval_used",
    void: "approval_void",
  };
  const message = state === "denied" && reason !== undefined && `This was not approved: ${reason}`;
  return new Refusal(codes[state], message ? { message } : {});
}

/** What an approval rests on that is not there any more; undefined if all of it is. */
function whyVoid(
  { access, queries }: Gateway,
  approval: Approval,
  { rules }: NeededApproval,
  basisHash: string,
): string | undefined {
  if (approval.basisHash !== basisHash) return "the caller's grants have changed";
  const { author, touched, username } = approval;
  if (author !== undefined && !mayApprove(access.snapshot, author, { username, rules })) {
    return "the approver may not approve it any more";
  }
  const isCompared = touched === undefined || queries.isEngine;
  return isCompared ? undefined : "nobody behind can compare the rows that were shown";
}

async function use(
  gateway: Gateway,
  exchange: Exchange,
  needing: Needing,
  store: ApprovalStore,
  id: string,
): Promise<Approval> {
  const binding = bindingOf(exchange, needing);
  const approval = uuid.test(id) ? await store.find(id) : undefined;
  if (approval?.username !== binding.username) throw new Refusal("approval_not_found");
  const { via, client, bodyHash, state } = approval;
  const isSame = via === binding.via && client === binding.client && bodyHash === binding.bodyHash;
  if (!isSame) throw new Refusal("approval_mismatch");
  if (state !== "pending" && state !== "approved") throw refusalFor(approval);
  const problem = whyVoid(gateway, approval, needing.needed, binding.basisHash);
  if (problem !== undefined) {
    await store.makeVoid(id, problem);
    throw new Refusal("approval_void");
  }
  if (state === "pending") throw pending(gateway, approval);
  exchange.verdict.approval = id;
  if (await store.consume(id, exchange.requestId)) return approval;
  throw refusalFor((await store.find(id)) ?? { state: "used", reason: undefined });
}

/**
 * Uses up the approval that a query shows. One that shows none asks for one, and is told so.
 *
 * @throws Refusal `approval_required` while it is pending, and others that say what is wrong with it
 */
function requireApproval(
  gateway: Gateway,
  exchange: Exchange,
  needing: Needing,
  id: string | undefined,
): Promise<Approval> {
  return gateway.approvals.use(async (store) => {
    if (id === undefined) throw await requestApproval(gateway, exchange, needing, store);
    return use(gateway, exchange, needing, store, id);
  });
}

/** Counts in all windows, and notes for the audit what they come to. @throws Refusal `rate_limited` */
async function countIn(
  { shared }: Gateway,
  { verdict }: Exchange,
  windows: readonly RateWindow[],
): Promise<void> {
  const counts = await Promise.all(windows.map((window) => shared.countRequests(window)));
  const rates = windows.map(({ boundary, limit }, at) => ({
    boundary,
    limit: writeRateLimit(limit),
    counted: counts[at]?.counted ?? 0,
  }));
  verdict.rates = [...(verdict.rates ?? []), ...rates];
  const retryAfter = Math.max(...counts.map((count) => count.retryAfter));
  if (retryAfter > 0) throw new Refusal("rate_limited", { retryAfter });
}

function windowsOf({ access }: Gateway, exchange: Exchange, databases?: readonly string[]) {
  const { subject } = exchange.authenticated;
  if (subject === undefined) return [];
  return rateWindowsOf(access.snapshot, subject.username, originOf(exchange), databases);
}

/**
 * Counts a query in the rate limits of its caller, a Batch as its elements; undefined if there are
 * none. A query that a tool asks was counted with the tool's call, but for further elements.
 *
 * @throws Refusal `rate_limited`
 */
function countQuery(
  gateway: Gateway,
  exchange: Exchange,
  { accesses }: Query,
): Promise<void> | undefined {
  if (gateway.access.snapshot.boundaries.length === 0) return undefined;
  const databases = accesses.map(({ database }) => database);
  // The call of a tool was counted, where no database is meant.
  const known = exchange.authenticated.principal === undefined ? 0 : 1;
  const windows = windowsOf(gateway, exchange, databases)
    .map((window) => ({ ...window, points: window.points - (window.isOfDatabase ? 0 : known) }))
    .filter(({ points }) => points > 0);
  return windows.length === 0 ? undefined : countIn(gateway, exchange, windows);
}

/** Counts a call of a tool, or what is no query; undefined if nothing limits it. @throws Refusal `rate_limited` */
export function countCall(gateway: Gateway, exchange: Exchange): Promise<void> | undefined {
  const windows = windowsOf(gateway, exchange);
  return windows.length === 0 ? undefined : countIn(gateway, exchange, windows);
}

/** What goes up of a query that may: where to, with which header fields, as which bytes. */

/** A request that may go up, and how. */
interface UpwardRequest {
  readonly queries: QueryClient;
  /** Set for `GET` of a path instead of a query. */
  readonly path?: string;
  readonly body: Buffer;
  /** The lines of its header fields. */
  readonly fields: string;
  readonly isRead: boolean;
  readonly trace: UpwardTrace | undefined;
  /** Judges a query that has waited for a connection. @throws Refusal */
  readonly judgeAgain?: () => void;
}

/** How `gatehouse engine` is told what a query may do at the most. */
export const LIMITS_HEADER = "x-gatehouse-limits";
/** How it is told to name nothing of the schema in errors that the query does not name. */
const NARROWED_HEADER = "x-gatehouse-narrowed";

/** Header fields besides those that the gateway adds to all that goes up. */
type OwnHeaders = Record<string, string | string[]>;

/** The header fields of a request, and its part of the trace. */
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

/** A query, where it goes, and what of it goes there: itself, or with the filters that it lacks. */
interface RoutedQuery {
  readonly asked: Asked;
  readonly queries: QueryClient;
  readonly sent: Asked;
  readonly judgeAgain: () => void;
}

/** Makes the request of what was judged. */
function requestFor(
  gateway: Gateway,
  exchange: Exchange,
  { asked, queries, sent, judgeAgain }: RoutedQuery,
  { decisions, identity, limits, seesSchema }: Judged,
  own: OwnHeaders,
): UpwardRequest {
  exchange.verdict.allow();
  if (sent !== asked) {
    exchange.verdict.filters = decisions.flatMap(({ additions = [] }) => additions);
  }
  if (limits.length > 0) own[LIMITS_HEADER] = limitsText(limits);
  if (!seesSchema && gateway.queries.isEngine) own[NARROWED_HEADER] = "schema";
  const { fields, trace } = headed(gateway, exchange, "POST", own, identity);
  const form = gateway.configuration.upstream.query_form;
  const body = inForm(form, sent.body, sent.query);
  return { queries, body, fields, isRead: isReadOnly(sent.query), trace, judgeAgain };
}

/**
 * The one way from a question to an answer, for `POST /query`, the tools of `/mcp` and `/schema`:
 * route to a database, judge, note, add headers and trace, and send up.
 */

/** Reads a query: in detail for whoever is narrowed, else as far as the audit tells it. @throws QueryRefused */
function readQuery(gateway: Gateway, exchange: Exchange, body: Buffer): Query {
  return scan(body, gateway.queries.grammar, isNarrowed(gateway, exchange) || "shape");
}

/**
 * Reads a long query in slices, between which others are served.
 *
 * @returns undefined if nobody waits for it any more
 * @throws QueryRefused
 */
function readLongQuery(
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
interface AdmitOptions {
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
function admit(
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
interface HoldOptions {
  /** Gives the query up. */
  readonly signal: AbortSignal;
  /** Bytes of the answer that are held; the user's account bears them until it has gone out. */
  readonly largest: number;
  /** The id of the approval that the query shows. */
  readonly approval?: string | undefined;
}

/** Notes for the audit what the engine tells of rows and limits; no other upstream is believed. */
function noteReport(
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
