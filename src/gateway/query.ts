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
import { ClientAnswer, givenUp, type QueryAnswer } from "../upstream/answer-stream.ts";
import {
  engineReportOf,
  fieldLines,
  gatewayHeaders,
  type Identity,
  queryHeaders,
  traceHeaders,
} from "../upstream/headers.ts";
import type { QueryClient } from "../upstream/query-client.ts";
import { toOpForm } from "../upstream/query-form.ts";
import { commonHeaders, reject, sendSuccess } from "./answer.ts";
import { requireStillGood } from "./authentication.ts";
import { type Exchange, payerOf } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { databaseParameter, tableParameter } from "./parameters.ts";
import type { Endpoint } from "./route.ts";

export interface Asked {
  readonly body: Buffer;
  readonly query: Query;
}

/**
 * Adds missing row filters to a query and parses the result again, in slices if it is long. The
 * result must follow the grammar, respect the body limit and access the same tables.
 *
 * @returns the original query if no filter is missing
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

/** @throws Error if the two queries access different tables */
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

const AUDITED_OPERATIONS = 16;

/** The maximum size in bytes of the shapes of one query. */
const LONGEST_SHAPES = 2048;
/** In bytes. Shorter shapes carry too little information to record. */
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

/**
 * The identity for the upstream. Each database is listed once, in the query's order, with the role
 * on it.
 */
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

/**
 * The entry point and OAuth client of a request, by which permission boundaries distinguish
 * callers.
 */
export function originOf({ authenticated: { principal } }: Exchange): QueryOrigin {
  return principal === undefined ? direct : { via: "mcp", client: principal.clientId };
}

const direct: QueryOrigin = { via: "query" };

export function isNarrowed({ access }: Gateway, exchange: Exchange): boolean {
  const { subject } = exchange.authenticated;
  return (
    subject !== undefined && mayBeNarrowed(access.snapshot, subject.username, originOf(exchange))
  );
}

/**
 * A limit that the engine must enforce. `touched` is the digest of the rows that an approval
 * covers.
 */
type EngineLimit = QueryLimit | BytewiseColumns | { readonly touched: string };

interface NeededApproval {
  readonly rules: readonly ApprovalRule[];
  readonly basis: string;
}

export function mayNeedApproval({ access }: Gateway, exchange: Exchange): boolean {
  const { subject } = exchange.authenticated;
  if (subject === undefined) return false;
  return rulesFor(access.snapshot, subject.username, originOf(exchange)).some(
    ({ requireApproval }) => requireApproval !== undefined,
  );
}

interface Judged {
  readonly decisions: readonly Decision[];
  /** Undefined while authentication is off. */
  readonly identity: Identity | undefined;
  readonly limits: readonly EngineLimit[];
  readonly approval: NeededApproval | undefined;
  /** False if part of the schema is hidden from the caller, including in errors. */
  readonly seesSchema: boolean;
}

/** @throws Refusal with the rule that denies it and what the caller can do */
export function requireAllowed({ reason, message }: Decision): void {
  if (reason !== "allowed") throw new Refusal(reason, message === undefined ? {} : { message });
}

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
 * Checks a query against the caller's rights and records both for the audit. While authentication
 * is off, nothing is checked.
 *
 * @throws Refusal with the rule that denies it
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

const APPROVAL_HEADER = "x-gatehouse-approval";

/** RFC 9562, section 4. */
const uuid = /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/;

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

/**
 * The response for a pending approval: where it is decided and how to continue once it is granted.
 */
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
 * Consumes the approval that the query presents. Without one, requests an approval and refuses the
 * query.
 *
 * @throws Refusal `approval_required` while it is pending, or another one if it is not valid
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

/**
 * Counts in all windows and records the counts for the audit.
 *
 * @throws Refusal `rate_limited`
 */
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
 * Counts a query in the caller's rate limits. Each element of a Batch counts. The first element of
 * a tool's query was already counted with the tool call. Returns undefined without limits.
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
  // The tool call was already counted in windows that are not limited to a database.
  const known = exchange.authenticated.principal === undefined ? 0 : 1;
  const windows = windowsOf(gateway, exchange, databases)
    .map((window) => ({ ...window, points: window.points - (window.isOfDatabase ? 0 : known) }))
    .filter(({ points }) => points > 0);
  return windows.length === 0 ? undefined : countIn(gateway, exchange, windows);
}

/**
 * Counts a tool call or a request that is not a query. Returns undefined without limits.
 *
 * @throws Refusal `rate_limited`
 */
export function countCall(gateway: Gateway, exchange: Exchange): Promise<void> | undefined {
  const windows = windowsOf(gateway, exchange);
  return windows.length === 0 ? undefined : countIn(gateway, exchange, windows);
}

interface UpwardRequest {
  readonly queries: QueryClient;
  readonly path?: string;
  readonly body: Buffer;
  readonly fields: string;
  readonly isRead: boolean;
  readonly trace: UpwardTrace | undefined;
  /**
   * Judges a query again after it has waited for a connection.
   *
   * @throws Refusal
   */
  readonly judgeAgain?: () => void;
}

/** Tells `gatehouse engine` the limits of a query. */
export const LIMITS_HEADER = "x-gatehouse-limits";
/**
 * Tells `gatehouse engine` that errors may name only schema objects that the query itself names.
 */
const NARROWED_HEADER = "x-gatehouse-narrowed";

/** Headers besides those that the gateway adds to all upstream requests. */
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
  // No name occurs in both. The configuration does not allow headers that the gateway sets.
  return { fields: fieldLines(own) + fieldLines(added), trace };
}

interface RoutedQuery {
  readonly asked: Asked;
  readonly queries: QueryClient;
  readonly sent: Asked;
  readonly judgeAgain: () => void;
}

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
  const isOpForm = gateway.configuration.upstream.query_form === "op";
  const body = isOpForm ? toOpForm(sent.body, sent.query) : sent.body;
  return { queries, body, fields, isRead: isReadOnly(sent.query), trace, judgeAgain };
}

/**
 * The single path from query to response for `POST /query`, the tools of `/mcp` and `/schema`:
 * route to a database, judge, record, add headers and trace, and forward upstream.
 */

/**
 * Parses a query, in full detail for narrowed callers and otherwise as far as the audit needs.
 *
 * @throws QueryRefused
 */
function readQuery(gateway: Gateway, exchange: Exchange, body: Buffer): Query {
  return scan(body, gateway.queries.grammar, isNarrowed(gateway, exchange) || "shape");
}

/**
 * Parses a long query in slices, so that other requests are served in between.
 *
 * @returns undefined if the client has left
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

/**
 * Consumes the approval and builds the request. It is sent at most once.
 *
 * @throws Refusal
 */
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
  // Changes made since the request, including new row filters, were not approved.
  const judged = judge(gateway, exchange, asked.query);
  if (judged.approval?.basis !== needed.basis) throw new Refusal("approval_void");
  const limits = touched === undefined ? judged.limits : [...judged.limits, { touched }];
  const request = requestFor(gateway, exchange, routed, { ...judged, limits }, own);
  return { ...request, isRead: false };
}

interface AdmitOptions {
  readonly own: OwnHeaders;
  readonly approval: string | undefined;
}

/**
 * Judges a query, adds the caller's row filters and records it for the audit. A required approval
 * is looked up first.
 *
 * @throws Refusal with the rule that denies it
 */
function admit(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  query: Query,
  options: AdmitOptions,
): UpwardRequest | Promise<UpwardRequest> {
  const asked = { body, query };
  // A query without a target is refused before it is judged.
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

interface HoldOptions {
  readonly signal: AbortSignal;
  /**
   * The maximum response size in bytes. It is charged to the user's account until the response has
   * been sent.
   */
  readonly largest: number;
  readonly approval?: string | undefined;
}

/** Records the engine's report on rows and limits. Reports of other upstreams are not trusted. */
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

/**
 * Sends a request upstream in the caller's turn and buffers the response.
 *
 * @throws Refusal
 */
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

/** The upstream's own credential, if any. Requests that originate here never carry the caller's. */
export function credentialOf({
  headers: { authorization },
}: Pick<Gateway, "headers">): Record<string, string> {
  return authorization === undefined ? {} : { authorization };
}

/**
 * Judges, records and forwards a tool's query like `POST /query`. Returns the response and the row
 * filters that were added.
 *
 * @throws QueryRefused or Refusal, both of which are recorded
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

/**
 * Requests schema information from an upstream on behalf of the caller.
 *
 * @throws Refusal
 */
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

function forward(gateway: Gateway, exchange: Exchange, request: UpwardRequest): void {
  const sink = new ClientAnswer({
    response: exchange.response,
    answerHeaders: commonHeaders(exchange),
    onHeaders: noteReport(gateway, exchange),
    fail: (error) => reject(gateway, exchange, error),
  });
  request.queries.forward({ ...request, user: payerOf(exchange) }, sink);
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

/**
 * Counts a request whose query could not be parsed.
 *
 * @throws `error`, or Refusal `rate_limited`
 */
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

/** `POST /query`: parses and judges the query, then forwards it byte for byte. */
export function query(bodyLimit: number): Endpoint {
  return { authentication: "data", bodyLimit, handle };
}

/** Sends the result unless the client leaves first. */
function schemaRoute(
  find: (gateway: Gateway, exchange: Exchange, signal: AbortSignal) => Promise<object>,
): Endpoint {
  return {
    authentication: "data",
    async handle(gateway, exchange) {
      const client = new AbortController();
      exchange.response.once("close", () => client.abort());
      const isOffered = await gateway.schema.isOffered(exchange, client.signal);
      if (isOffered === false) throw new Refusal("schema_not_offered");
      const data = await find(gateway, exchange, client.signal);
      exchange.verdict.allow();
      sendSuccess(exchange, 200, { data });
    },
  };
}

export const databases = schemaRoute(async ({ schema }, exchange, signal) => ({
  databases: await schema.listDatabases(exchange, signal),
}));

export const tables = schemaRoute(async ({ schema }, exchange, signal) => ({
  tables: await schema.listTables(exchange, databaseParameter(exchange), signal),
}));

export const table = schemaRoute(({ schema }, exchange, signal) =>
  schema.describeTable(exchange, databaseParameter(exchange), tableParameter(exchange), signal),
);
