import { isDeepStrictEqual } from "node:util";
import { decideQuery } from "../access/policy.ts";
import { writeRateLimit } from "../access/records.ts";
import {
  type Decision,
  filterAdditions,
  findRateWindows,
  mayBeNarrowed,
  type QueryDecision,
  type RateWindow,
  seesSchema,
} from "../access/rights.ts";
import { type AddedFilter, addedFilters } from "../access/row-filter.ts";
import type { Snapshot } from "../access/snapshot.ts";
import { ClientError } from "../base/client-error.ts";
import {
  runAtOnce,
  runCooperatively,
  type Steps,
  whileWanted,
} from "../base/cooperative-scheduling.ts";
import { Refusal } from "../base/refusal.ts";
import { counted } from "../base/suggestion.ts";
import type { UpstreamTrace } from "../observe/tracing.ts";
import { addToBytes, addToTree } from "../query/additions.ts";
import type { QueryLimit } from "../query/limits.ts";
import { describeShape } from "../query/node.ts";
import { LONG_BODY, parseQuery, parseQueryInSlices, STEP_BYTES } from "../query/parse.ts";
import { type Access, isReadOnly, type ParsedQuery, type Query } from "../query/query.ts";
import { abandoned, ClientAnswer, type QueryAnswer } from "../upstream/answer-stream.ts";
import {
  ask as askDatabase,
  type Database,
  type DatabaseQuery,
  type RunReport,
  type SchemaQuery,
} from "../upstream/database.ts";
import {
  credentialHeaders,
  fieldLines,
  gatewayHeaders,
  type Identity,
  queryHeaders,
  traceHeaders,
} from "../upstream/headers.ts";
import { toOpForm } from "../upstream/query-form.ts";
import { commonHeaders, reject } from "./answer.ts";
import {
  type Exchange,
  fairnessKey,
  queryOrigin,
  requireStillAllowed,
  requireStillGood,
} from "./exchange.ts";
import type { Gateway, NeededApproval } from "./gateway.ts";
import type { Endpoint } from "./route.ts";

/**
 * Adds missing row filters to a query.
 *
 * @param readsBytes true if the database runs the bytes of a query, not its tree
 * @throws QueryRefused, or Refusal `body_too_large`
 */
export function* addFilters(
  { queries: { grammar }, configuration }: Pick<Gateway, "queries" | "configuration">,
  parsed: ParsedQuery,
  decisions: readonly Decision[],
  readsBytes: boolean,
  bytesPerStep: number,
): Steps<ParsedQuery> {
  const additions = filterAdditions(decisions);
  if (additions.length === 0) return parsed;
  if (!readsBytes) {
    return { body: parsed.body, query: yield* addToTree(parsed.query, additions) };
  }
  const filtered = yield* addToBytes(parsed, additions, grammar, bytesPerStep);
  if (filtered.body.length <= configuration.server.max_body_bytes) return filtered;
  throw new Refusal("body_too_large");
}

export const AUDITED_OPERATIONS = 16;

const LONGEST_SHAPES_BYTES = 2048;
/** Shorter shapes carry too little information to record. */
const SHORTEST_SHAPE_BYTES = 32;

function recordOperations(
  exchange: Exchange,
  { accesses }: Query,
  decisions: readonly Decision[],
  { version }: Snapshot,
): void {
  let left = LONGEST_SHAPES_BYTES;
  const operations = accesses
    .slice(0, AUDITED_OPERATIONS)
    .map(({ operation, database, tables, node }, at) => {
      const { role, entry, boundary } = decisions[at] ?? { role: undefined, entry: undefined };
      const shape = left < SHORTEST_SHAPE_BYTES ? "" : describeShape(node, left);
      left -= Buffer.byteLength(shape);
      return { operation, database, tables, role, entry, boundary, shape: shape || undefined };
    });
  exchange.verdict.record(operations, accesses.length, version);
}

/** Each database is listed once, in the query's order, with the role on it. */
function upstreamIdentity(
  username: string,
  query: Query,
  decisions: readonly Decision[],
): Identity {
  const roles = new Map<string, string>();
  for (const [at, { database }] of query.accesses.entries()) {
    roles.set(database, decisions[at]?.role ?? "");
  }
  return { username, roles: [...roles.values()], databases: [...roles.keys()] };
}

export function isNarrowed({ access }: Gateway, exchange: Exchange): boolean {
  const { subject } = exchange.authenticated;
  return subject !== undefined && mayBeNarrowed(access.snapshot, subject, queryOrigin(exchange));
}

interface Authorization {
  /** The rules that decided, and the time of the decision (`performance.now()`). */
  readonly snapshot: Snapshot;
  readonly decidedAt: number;
  readonly decisions: readonly Decision[];
  /** Undefined while authentication is off. */
  readonly identity: Identity | undefined;
  readonly limits: readonly QueryLimit[];
  readonly approval: NeededApproval | undefined;
  /** False if part of the schema is hidden from the caller, including in errors. */
  readonly seesSchema: boolean;
}

/** By the same rules, only what expires decides otherwise. */
const DECIDED_AGAIN_AFTER_MS = 500;

/** The rows of an answer depend on these, and not on the role that allows it. */
function rowsOf({ decisions, limits, approval }: Authorization) {
  return { filters: decisions.map(({ filters = [] }) => filters), limits, approval };
}

const openRights: Omit<Authorization, "snapshot" | "decidedAt"> = {
  decisions: [],
  identity: undefined,
  limits: [],
  approval: undefined,
  seesSchema: true,
};

export function requireAllowed({ reason, message }: Decision): void {
  if (reason !== "allowed") throw new Refusal(reason, { message });
}

function denialRefusal({ batch }: Query, { decisions, reason }: QueryDecision): Refusal {
  const { message } = decisions.at(-1) ?? {};
  const code = reason === "allowed" ? "no_grant" : reason;
  if (!batch) return new Refusal(code, { message });
  const element = decisions.length - 1;
  const members = { element, reason: code };
  const detail = `Batch[${element}]: ${code}`;
  return new Refusal("batch_member_denied", { message, detail, members });
}

/**
 * Checks a query against the caller's rights and records both for the audit.
 *
 * @throws Refusal with the rule that denies it
 */
function authorize({ access, queries }: Gateway, exchange: Exchange, query: Query): Authorization {
  const { subject } = exchange.authenticated;
  const { snapshot } = access;
  const decidedAt = performance.now();
  if (subject === undefined) {
    recordOperations(exchange, query, [], snapshot);
    return { snapshot, decidedAt, ...openRights };
  }
  const context = { ...queryOrigin(exchange), now: Date.now(), isEngine: queries.isEngine };
  const decided = decideQuery(snapshot, subject, query, context);
  const { allowed, decisions, limits, bytewise, reason } = decided;
  const { approvals: rules, basis = "" } = decided;
  const needsApproval = reason === "approval_required";
  recordOperations(exchange, query, decisions, snapshot);
  if (!allowed && !needsApproval) throw denialRefusal(query, decided);
  return {
    snapshot,
    decidedAt,
    decisions,
    identity: upstreamIdentity(subject.username, query, decisions),
    limits: bytewise === undefined ? limits : [...limits, ...bytewise],
    approval: needsApproval ? { rules, basis } : undefined,
    seesSchema: query.accesses.every(({ database }) => seesSchema(snapshot, subject, database)),
  };
}

/** @throws Refusal `rate_limited` */
async function countInWindows(
  gateway: Gateway,
  exchange: Exchange,
  windows: readonly RateWindow[],
): Promise<void> {
  const { shared } = gateway;
  const counts = await Promise.all(windows.map((window) => shared.countRequests(window)));
  const rates = windows.map(({ boundary, limit }, at) => ({
    boundary,
    limit: writeRateLimit(limit),
    counted: counts[at]?.counted ?? 0,
  }));
  exchange.verdict.noteRates(rates);
  const retryAfter = counts.reduce((most, count) => Math.max(most, count.retryAfter), 0);
  if (retryAfter > 0) {
    const message = `The rate limit of a permission boundary is exceeded: try again in ${counted(retryAfter, "second")}`;
    throw new Refusal("rate_limited", { retryAfter, message });
  }
  // Counting may have waited for the store, and the token been revoked in the meantime.
  requireStillGood(gateway, exchange);
}

function callerWindows(
  { access }: Gateway,
  exchange: Exchange,
  databases?: ReadonlyMap<string, number>,
): RateWindow[] {
  const { subject } = exchange.authenticated;
  if (subject === undefined) return [];
  return findRateWindows(access.snapshot, subject, queryOrigin(exchange), databases);
}

/**
 * Counts each element of a query in the caller's rate limits. Returns undefined without limits.
 *
 * @param earlier windows that have counted the request already; those of `countCall` for MCP
 * @param elements of the query, if several may use a database by one access
 * @throws Refusal `rate_limited`
 */
export function countAccesses(
  gateway: Gateway,
  exchange: Exchange,
  accesses: readonly { readonly database: string }[],
  earlier: readonly RateWindow[] = exchange.routed.via === "mcp"
    ? callerWindows(gateway, exchange)
    : [],
  elements = 1,
): Promise<void> | undefined {
  if (gateway.access.snapshot.boundaries.length === 0) return undefined;
  const databases = new Map<string, number>();
  for (const { database } of accesses) databases.set(database, (databases.get(database) ?? 0) + 1);
  for (const [database, times] of databases) databases.set(database, Math.max(times, elements));
  const windows = callerWindows(gateway, exchange, databases)
    .map((window) => {
      const { points = 0 } = earlier.find(({ key }) => key === window.key) ?? {};
      return { ...window, points: window.points - points };
    })
    .filter(({ points }) => points > 0);
  return windows.length === 0 ? undefined : countInWindows(gateway, exchange, windows);
}

/**
 * Counts a request, whatever it does.
 *
 * @param database that it names. If absent, only windows that are not limited to one count.
 * @returns the windows, or undefined without limits
 * @throws Refusal `rate_limited`
 */
export function countCall(
  gateway: Gateway,
  exchange: Exchange,
  database?: string,
): Promise<readonly RateWindow[]> | undefined {
  const named = database === undefined ? undefined : new Map([[database, 1]]);
  const windows = callerWindows(gateway, exchange, named);
  return windows.length === 0
    ? undefined
    : countInWindows(gateway, exchange, windows).then(() => windows);
}

interface PreparedQuery extends DatabaseQuery {
  readonly authorizeAgain: () => void;
  /** @throws Refusal once the caller may no longer see the rows that were judged */
  readonly requireSameRows: () => void;
  readonly database: Database;
  readonly trace: UpstreamTrace | undefined;
}

const APPROVAL_HEADER = "x-gatehouse-approval";

type OwnHeaders = Record<string, string | string[]>;

function addressed(
  gateway: Gateway,
  exchange: Exchange,
  database: Database,
  method: "GET" | "POST",
  makeHeaders: () => OwnHeaders,
  identity: Identity | undefined,
): Pick<PreparedQuery, "user" | "requestId" | "fields" | "trace" | "database"> {
  const { requestId } = exchange;
  const headers = database.isEngine ? {} : makeHeaders();
  const trace = exchange.forwardUpstream({ method, headers, target: gateway.tracing?.upstream });
  let fields = "";
  if (!database.isEngine) {
    // No name occurs in both. The configuration does not allow headers that the gateway sets.
    fields = fieldLines(headers) + fieldLines(gatewayHeaders(exchange, identity));
  }
  return { user: fairnessKey(exchange), requestId, fields, trace, database };
}

interface PrepareOptions {
  /** Makes the headers besides those that the gateway adds to all requests to a foreign upstream. */
  readonly own: () => OwnHeaders;
  readonly accept?: string | undefined;
  readonly approval: string | undefined;
  /** False once no one is waiting for the response. */
  readonly isWanted: () => boolean;
}

/**
 * The single path from the bytes of a query to the database, for `POST /query` and for tools:
 * parse, count, judge, filter, approve. A short query of a caller without rate limits waits for
 * none of them.
 *
 * @returns undefined if no one is waiting for the response any longer
 * @throws QueryRefused, or Refusal
 */
async function prepare(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  options: PrepareOptions,
): Promise<PreparedQuery | undefined> {
  const isShort = body.length < LONG_BODY;
  let query: Query | undefined;
  try {
    query = isShort
      ? parseQuery(body, gateway.queries.grammar)
      : await parseLong(gateway, exchange, body, options.isWanted);
  } catch (error) {
    requireStillGood(gateway, exchange);
    // A refused body counts as a request.
    if (exchange.routed.via !== "mcp") await countCall(gateway, exchange);
    throw error;
  }
  if (query === undefined || !options.isWanted()) return undefined;
  const counting = countAccesses(gateway, exchange, query.accesses);
  if (counting !== undefined) await counting;
  const parsed = { body, query };
  // A query without a target is refused before it is judged.
  const database = gateway.routing.databaseFor(query);
  const judged = authorize(gateway, exchange, query);
  // A database that compares keys as written would not find a filter or a limit under such a key.
  if (query.escaped !== undefined && !database.isEngine && isNarrowed(gateway, exchange)) {
    throw query.escaped;
  }
  const steps = addFilters(gateway, parsed, judged.decisions, database.readsBytes, STEP_BYTES);
  let sent: ParsedQuery;
  if (isShort) sent = runAtOnce(steps);
  else {
    sent = await runCooperatively(steps);
    requireStillGood(gateway, exchange);
  }
  const needed = judged.approval;
  if (needed === undefined) {
    return requestFor(gateway, exchange, database, parsed, sent, judged, options);
  }
  const added = await gateway.admission.admit(gateway, exchange, parsed, needed, options.approval);
  requireStillGood(gateway, exchange);
  // Changes made since the request, including new row filters, were not approved.
  const now = authorize(gateway, exchange, query);
  if (now.approval?.basis !== needed.basis) throw new Refusal("approval_void");
  const request = requestFor(gateway, exchange, database, parsed, sent, now, options);
  // It is sent at most once.
  return { ...request, limits: [...now.limits, ...added], isRead: false };
}

async function parseLong(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  isWanted: () => boolean,
): Promise<Query | undefined> {
  const hold = (bytes: number) => gateway.budget.take(exchange, bytes);
  const query = await parseQueryInSlices(body, gateway.queries.grammar, isWanted, hold);
  if (query === undefined) return undefined;
  if (isNarrowed(gateway, exchange)) {
    // Rows of narrowed callers are judged.
    const read = await runCooperatively(whileWanted(query.operations.parse(), isWanted));
    if (read === undefined) return undefined;
  }
  requireStillGood(gateway, exchange);
  return query;
}

function requestFor(
  gateway: Gateway,
  exchange: Exchange,
  database: Database,
  parsed: ParsedQuery,
  sent: ParsedQuery,
  judged: Authorization,
  { own, accept }: PrepareOptions,
): PreparedQuery {
  const { snapshot, decidedAt, decisions, identity, limits, seesSchema } = judged;
  const judgeAgain = (): Authorization => {
    requireStillGood(gateway, exchange);
    const isSame = gateway.access.snapshot === snapshot;
    const isRecent = isSame && performance.now() - decidedAt < DECIDED_AGAIN_AFTER_MS;
    return isRecent ? judged : authorize(gateway, exchange, parsed.query);
  };
  exchange.verdict.allow();
  if (sent !== parsed) exchange.verdict.noteFilters(addedFilters(parsed.query, decisions));
  const isOpForm = gateway.configuration.upstream.query_form === "op";
  return {
    ...addressed(gateway, exchange, database, "POST", own, identity),
    query: sent.query,
    body: isOpForm ? toOpForm(sent.body, sent.query) : sent.body,
    isRead: isReadOnly(sent.query),
    limits,
    seesSchema,
    accept,
    authorizeAgain() {
      const now = judgeAgain();
      if (isDeepStrictEqual({ ...now, snapshot, decidedAt }, judged)) return;
      const detail = "the caller's rights changed while the query waited for a connection";
      throw new Refusal("busy", { detail, retryAfter: 1 });
    },
    requireSameRows() {
      if (isDeepStrictEqual(rowsOf(judgeAgain()), rowsOf(judged))) return;
      throw new Refusal("busy", { detail: "the caller may see other rows now" });
    },
    report: (report: RunReport) => exchange.verdict.noteReport(report),
  };
}

/** Has the answer to a read cut once it would no longer be allowed. A change runs to its end. */
function checkReadWhileOpen({ verdict }: Exchange, { query, requireSameRows }: PreparedQuery) {
  const isChange = ({ reads, operation }: Access) => !reads && operation !== "Preview";
  if (query.accesses.some(isChange)) verdict.runToEnd();
  else verdict.checkWhileOpen(requireSameRows);
}

interface AskOptions {
  readonly signal: AbortSignal;
  /** In bytes, charged to the user's account until the response has been sent. */
  readonly largest: number;
  readonly approval?: string | undefined;
}

async function askUpstream(
  gateway: Gateway,
  exchange: Exchange,
  {
    database,
    trace,
    ...request
  }: (DatabaseQuery | SchemaQuery) & Pick<PreparedQuery, "database" | "trace">,
  options: AskOptions,
): Promise<QueryAnswer> {
  const answer = await askDatabase(database, {
    ...request,
    ...options,
    hold: (bytes) => gateway.budget.take(exchange, bytes),
  });
  trace?.end(answer.status);
  if (answer.status >= 500) gateway.metrics?.upstreamError();
  return answer;
}

export interface FilteredAnswer extends QueryAnswer {
  readonly filters: readonly AddedFilter[];
}

export async function ask(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  options: AskOptions,
): Promise<FilteredAnswer> {
  try {
    const trace = traceHeaders(exchange.request.headers);
    const own = () => ({
      "content-type": "application/json",
      ...trace,
      ...credentialHeaders(gateway.headers),
    });
    const isWanted = () => !options.signal.aborted;
    const { approval } = options;
    requireStillGood(gateway, exchange);
    const request = await prepare(gateway, exchange, body, { own, approval, isWanted });
    if (request === undefined) throw abandoned();
    checkReadWhileOpen(exchange, request);
    const answer = await askUpstream(gateway, exchange, request, options);
    if (answer.status !== 200) exchange.verdict.noteStatus(answer.status);
    return { ...answer, filters: exchange.verdict.filters };
  } catch (error) {
    if (error instanceof ClientError) exchange.verdict.deny(error.code, error.status);
    throw error;
  }
}

/** Requests schema information on behalf of the caller. */
export function requestSchema(
  schema: readonly string[],
  gateway: Gateway,
  exchange: Exchange,
  database: Database,
  options: AskOptions,
): Promise<QueryAnswer> {
  const { subject } = exchange.authenticated;
  const identity = subject && { username: subject.username, roles: [], databases: [] };
  const own = () => ({
    accept: "application/json",
    ...traceHeaders(exchange.request.headers),
    ...credentialHeaders(gateway.headers),
  });
  const addressedTo = addressed(gateway, exchange, database, "GET", own, identity);
  const request = { ...addressedTo, schema, authorizeAgain: undefined };
  return askUpstream(gateway, exchange, request, options);
}

async function handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> {
  const { request, response } = exchange;
  const prepared = await prepare(gateway, exchange, body, {
    own: () => queryHeaders(request.headers, gateway.headers),
    accept: request.headers.accept,
    approval: request.headers[APPROVAL_HEADER]?.toString(),
    isWanted: () => !response.destroyed,
  });
  if (prepared === undefined) return;
  checkReadWhileOpen(exchange, prepared);
  const answer = new ClientAnswer({
    response,
    addedHeaders: commonHeaders(exchange),
    selectHeaders(_status, rawHeaders) {
      requireStillAllowed(exchange);
      return rawHeaders;
    },
    fail: (error) => reject(gateway, exchange, error),
  });
  prepared.database.run(prepared, answer);
}

export function query(bodyLimit: number): Endpoint {
  return { authentication: "data", bodyLimit, handle };
}
