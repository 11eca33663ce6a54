import { Readable } from "node:stream";
import { requireAdministrator } from "../../core/access/administration.ts";
import {
  decideEveryTable,
  decideWholeDatabase,
  isAdministrator,
  mayUseInside,
} from "../../core/access/policy.ts";
import type { Decision } from "../../core/access/rights.ts";
import { memoizeLast } from "../../core/base/memoize.ts";
import { Refusal } from "../../core/base/refusal.ts";
import { isOwnPath } from "../../core/config/routes.ts";
import { basePathOf, type Configuration } from "../../core/config/schema.ts";
import { reject, sendJson, upstreamHeaders } from "../../core/http/answer.ts";
import {
  type Exchange,
  fairnessKey,
  queryOrigin,
  requireStillAllowed,
  requireStillGood,
} from "../../core/http/exchange.ts";
import type { Gateway } from "../../core/http/gateway.ts";
import { AUDITED_OPERATIONS, countAccesses, countCall } from "../../core/http/query.ts";
import type { Endpoint, Route, Router } from "../../core/http/route.ts";
import { accountOf } from "../../core/identity/revocations.ts";
import { quoteName } from "../../core/json/fault.ts";
import type { AuditedOperation } from "../../core/observe/audit-line.ts";
import { foreignTable, placeName, wholeDatabase } from "../../core/query/names.ts";
import type { PermissionClass } from "../../core/query/permissions.ts";
import { ClientAnswer } from "../../core/upstream/answer-stream.ts";
import type { ForwardedRequest } from "../../core/upstream/database.ts";
import {
  answerHeaders,
  fieldLines,
  framing,
  gatewayHeaders,
  type Identity,
  presetHeaders,
  privateHeaders,
  withoutFields,
} from "../../core/upstream/headers.ts";
import { badRequest, brokenAnswer, limitedBody, type ReadBody, readBodyFor } from "./body.ts";
import { Handles } from "./handles.ts";
import { Lookups, readAnswer } from "./lookups.ts";
import {
  createFinder,
  type FindEndpoints,
  readPath,
  readQuery,
  respell,
  writeQuery,
} from "./path.ts";
import type { Access, Plan, Preset, PresetEndpoint, PresetRequest } from "./preset.ts";

/** @throws Refusal `invalid_database` or `invalid_table` */
function requireNames({ database, table, everyTable = "" }: Access): void {
  if (!wholeDatabase.test(database) || database.startsWith("_")) {
    throw new Refusal("invalid_database");
  }
  const isBad = (name: string) => name !== "" && !foreignTable.test(name);
  if (table === "" || isBad(table ?? "") || isBad(everyTable)) throw new Refusal("invalid_table");
}

/** Undefined while authentication is off. @throws Refusal `invalid_database` or `invalid_table` */
function decide(gateway: Gateway, exchange: Exchange, access: Access): Decision | undefined {
  requireNames(access);
  const { subject } = exchange.authenticated;
  if (subject === undefined) return undefined;
  const { snapshot } = gateway.access;
  const origin = queryOrigin(exchange);
  const { database, table, everyTable } = access;
  let decision: Decision | undefined;
  for (const permission of access.permissions) {
    decision =
      everyTable === undefined
        ? decideWholeDatabase(snapshot, subject, permission, database, origin, table)
        : decideEveryTable(snapshot, subject, permission, database, everyTable, origin);
    if (!decision.allowed) break;
  }
  return decision ?? { allowed: false, reason: "no_grant", role: undefined, entry: undefined };
}

function denialOf(
  gateway: Gateway,
  exchange: Exchange,
  access: Access,
  decision: Decision,
): Refusal {
  const { database, table, alias, element, permissions } = access;
  // A pattern has been judged before. A denied name must not tell whether it is an alias.
  if (alias !== undefined && !alias.includes("*")) {
    const named: Access = { permissions, database, table: alias, element };
    const own = decide(gateway, exchange, named);
    if (own?.allowed === false) return denialOf(gateway, exchange, named, own);
  }
  const { reason } = decision;
  const code = reason === "allowed" ? "no_grant" : reason;
  let { message } = decision;
  if (alias !== undefined) {
    message = `${quoteName(alias)} is an alias of a name that the caller may not use in this way`;
  } else if (code === "not_narrowable") {
    const place = placeName(database, table);
    message = `The access of the caller to ${place} has limits, such as columns, rows or approvals, which requests to this server cannot keep`;
  }
  return new Refusal(code, { message, members: element === undefined ? undefined : { element } });
}

/**
 * Judges every access of a request, as it is before it is sent and while it is answered.
 *
 * @throws Refusal with the rule that denies the first one
 */
function requireAllowed(
  gateway: Gateway,
  exchange: Exchange,
  { accesses, isForAdministrators }: Plan,
  note: (access: Access, decision: Decision | undefined) => void = () => {},
): void {
  for (const access of accesses) {
    const decision = decide(gateway, exchange, access);
    note(access, decision);
    if (decision?.allowed === false) throw denialOf(gateway, exchange, access, decision);
  }
  const { subject } = exchange.authenticated;
  if (isForAdministrators && subject !== undefined) {
    requireAdministrator(gateway.access.snapshot, subject);
  }
}

/**
 * Judges a request and records its accesses for the audit.
 *
 * @returns the caller as the upstream may hear of it. Undefined while authentication is off.
 * @throws Refusal
 */
function authorize(gateway: Gateway, exchange: Exchange, plan: Plan): Identity | undefined {
  const { subject } = exchange.authenticated;
  const roles = new Map<string, string>();
  const operations: AuditedOperation[] = [];
  try {
    requireAllowed(gateway, exchange, plan, (access, decision) => {
      const { database, table, everyTable, permissions } = access;
      const { role, entry, boundary } = decision ?? {};
      roles.set(database, role ?? "");
      if (operations.length === AUDITED_OPERATIONS && decision?.allowed !== false) return;
      const tables = everyTable === undefined ? [table ?? []].flat() : [`${everyTable}*`];
      const operation = permissions.join(" ");
      operations.push({ operation, database, tables, role, entry, boundary });
    });
  } finally {
    const recorded = operations.slice(-AUDITED_OPERATIONS);
    exchange.verdict.record(recorded, plan.accesses.length, gateway.access.version);
  }
  if (subject === undefined) return undefined;
  return { username: subject.username, roles: [...roles.values()], databases: [...roles.keys()] };
}

/** @throws Refusal `bad_request` for a header that is sent twice and would go up */
function requireOnce({ request }: Exchange, listed: ReadonlySet<string>): void {
  const { rawHeaders, headers, httpVersion } = request;
  // A name sent twice is one key. Only HTTP/1.0 may lack the Host that a key was added for.
  if (httpVersion === "1.1" && 2 * Object.keys(headers).length === rawHeaders.length) return;
  const seen = new Set<string>();
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]?.toLowerCase() ?? "";
    const isRead = listed.has(name) || name.startsWith("content-") || name === "accept";
    if (isRead && seen.has(name)) throw badRequest(`the header ${quoteName(name)} is sent twice`);
    seen.add(name);
  }
}

const noBody: Buffer = Buffer.alloc(0);
const json = "application/json";
type RequestHeaders = Record<string, string | string[]>;
/** Without a body in memory, that of the client is passed on in a stream. */
interface Sent extends Omit<ForwardedRequest, "body"> {
  readonly body: Buffer | undefined;
  /** @throws Refusal if it may no longer be sent */
  readonly authorizeAgain: () => void;
}

interface PlannedRequest {
  readonly plan: Plan;
  /** As the client sent them. */
  readonly query: ReadonlyMap<string, string>;
  /** The client's body. Undefined if it is passed on in a stream. */
  readonly bytes: Buffer | undefined;
}

const framingFields = new Set(["content-length", "content-encoding", "transfer-encoding"]);
/** They would return the list of another caller, or a part of it. */
const conditional = /^(?:if-.*|range)$/;
/** Of a body that was changed, these say something else. */
const ofBody =
  /^(?:content-length|content-encoding|etag|accept-ranges|last-modified|cache-control|expires)$/i;

/**
 * They belong to the gateway's own credential, which the client must not have, or, in OpenSearch, to
 * the work of all users.
 */
const ofOthers = /^(?:set-cookie2?|www-authenticate|authentication-info|task_resource_usage)$/i;
const ofPlace = /^(?:content-)?location$/i;
/** The parser returns the same list for an identical head. */
const hasChecked = memoizeLast((raw: readonly string[]): boolean =>
  raw.some((name, at) => at % 2 === 0 && (ofOthers.test(name) || ofPlace.test(name))),
);

/**
 * The headers of an answer without those about the gateway's own credential, and without a
 * `Location` at another host. No shared cache may keep them.
 *
 * @throws Refusal `upstream_broken` for a 401, which is not about the client's credential; also if
 * the request would no longer be allowed
 */
function safeAnswerHeaders(
  exchange: Exchange,
  status: number,
  raw: readonly string[],
): readonly string[] {
  const { proto, host = "" } = exchange.peer;
  requireStillAllowed(exchange);
  if (status === 401) {
    throw brokenAnswer("status 401: the upstream refused upstream.credential, or needs one");
  }
  if (!hasChecked(raw)) return privateHeaders(raw);
  const isPassed = (name: string, value: string): boolean => {
    if (ofPlace.test(name)) {
      return /^\/(?!\/)/.test(value) || value.startsWith(`${proto}://${host}/`);
    }
    return !ofOthers.test(name);
  };
  const passed = raw.filter((_, at) => {
    const start = at - (at % 2);
    return isPassed(raw[start] ?? "", raw[start + 1] ?? "");
  });
  return privateHeaders(passed);
}

export class PresetServer {
  readonly preset: Preset;
  readonly #find: FindEndpoints;
  readonly #headers: ReadonlySet<string>;
  readonly #gateway: Gateway;
  readonly #lookups: Lookups;
  readonly #handles: Handles;

  constructor(preset: Preset, gateway: Gateway) {
    this.preset = preset;
    this.#find = createFinder(preset);
    this.#headers = new Set(preset.headers);
    this.#gateway = gateway;
    this.#lookups = new Lookups(gateway);
    this.#handles = new Handles(gateway.keys, gateway.configuration.auth.issuer);
  }

  /** The version that the upstream states. Undefined if it does not. */
  async version(): Promise<string | undefined> {
    const { path, read } = this.preset.version;
    try {
      const { status, body } = await this.#lookups.ask(path, 1000);
      return status === 200 && body !== undefined ? read(body) : undefined;
    } catch {
      return undefined;
    }
  }

  isTested(version: string): boolean {
    return this.preset.tested.some((one) => version === one || version.startsWith(`${one}.`));
  }

  /** @throws Refusal `path_not_canonical`, from the returned router */
  router(configuration: Configuration): Router {
    const basePath = basePathOf(configuration);
    const serve = (endpoint: PresetEndpoint): Endpoint => ({
      authentication: "data",
      readsBody: true,
      handle: (_gateway, exchange) => this.#handle(exchange, endpoint),
    });
    const forwardedHeaders = () => [...this.preset.headers, "content-encoding"];
    const routes = new Map<string, Route>();
    for (const [pattern, endpoints] of Map.groupBy(this.preset.endpoints, ({ path }) => path)) {
      const methods = new Map(endpoints.map((endpoint) => [endpoint.method, serve(endpoint)]));
      routes.set(pattern, { pattern, methods, forwardedHeaders });
    }
    return (path) => {
      const segments = readPath(path);
      if (isOwnPath(segments, basePath)) return undefined;
      const match = this.#find(segments);
      const route = routes.get(match?.path ?? "");
      return match && route && { route, parameters: match.parameters };
    };
  }

  async #handle(exchange: Exchange, endpoint: PresetEndpoint): Promise<void> {
    const gateway = this.#gateway;
    // A refused request counts too, and so do its lookups.
    const { default_database: home } = gateway.configuration.auth;
    const database = this.preset.databaseIn(exchange.routed.parameters, home);
    const counted = await countCall(gateway, exchange, database);
    const planned = await this.#plan(exchange, endpoint);
    const { accesses, elements, reply } = planned.plan;
    const counting = countAccesses(gateway, exchange, accesses, counted ?? [], elements);
    if (counting !== undefined) await counting;
    requireStillGood(gateway, exchange);
    const identity = authorize(gateway, exchange, planned.plan);
    exchange.verdict.allow();
    if (exchange.response.destroyed) return;
    if (reply === undefined) return this.#forward(exchange, endpoint, planned, identity);
    const { product } = this.#lookups;
    const headers = product === undefined ? [] : ["X-Elastic-Product", product];
    sendJson(exchange, reply.status, reply.body, headers);
  }

  async #plan(exchange: Exchange, endpoint: PresetEndpoint): Promise<PlannedRequest> {
    const gateway = this.#gateway;
    try {
      const body = await readBodyFor(gateway, exchange, endpoint);
      requireStillGood(gateway, exchange);
      requireOnce(exchange, this.#headers);
      const query = readQuery(exchange.request.url ?? "", endpoint.parameters ?? []);
      const plan = await endpoint.plan(this.#requestOf(exchange, endpoint, query, body));
      return { plan, query, bytes: body?.bytes };
    } catch (error) {
      requireStillGood(gateway, exchange);
      throw error;
    }
  }

  async #forward(
    exchange: Exchange,
    endpoint: PresetEndpoint,
    { plan, query, bytes }: PlannedRequest,
    identity: Identity | undefined,
  ): Promise<void> {
    const gateway = this.#gateway;
    const { request } = exchange;
    const isChanged = plan.answer !== undefined;
    const authorizeAgain = () => {
      requireStillGood(gateway, exchange);
      requireAllowed(gateway, exchange, plan);
    };
    const own = request.method === "HEAD" && isChanged ? "GET" : (request.method ?? "");
    const method = plan.method ?? own;
    // Readers may also store: CouchDB's checkpoints.
    const isChange = method === "PUT" || method === "DELETE" || plan.isForAdministrators === true;
    const isRead =
      !isChange &&
      plan.accesses.every(({ permissions }) => permissions.every((one) => one === "SELECT"));
    const headers = this.#headersFor(exchange, endpoint, plan, identity);
    exchange.forwardUpstream({ method, headers, target: gateway.tracing?.upstream });
    const sent: Sent = {
      user: fairnessKey(exchange),
      requestId: exchange.requestId,
      fields: fieldLines(headers),
      method,
      path: (plan.path ?? respell(exchange.path)) + writeQuery(plan.query ?? query),
      body: plan.body ?? (plan.method === undefined ? bytes : noBody),
      isRead: isRead && plan.isOnce !== true,
      authorizeAgain,
    };
    const { body = noBody } = sent;
    const { isStream = false } = plan;
    const isStreamed = !isChanged && (method === "HEAD" || sent.body === undefined || isStream);
    if (isRead || isStreamed) exchange.verdict.checkWhileOpen(authorizeAgain);
    if (isStreamed) {
      await this.#stream(exchange, sent, headers, isStream);
    } else if (isChanged) await this.#sendChanged(exchange, { ...sent, body }, plan.answer);
    else this.#send(exchange, { ...sent, body });
  }

  #requestOf(
    exchange: Exchange,
    endpoint: PresetEndpoint,
    query: ReadonlyMap<string, string>,
    body: ReadBody | undefined,
  ): PresetRequest {
    const gateway = this.#gateway;
    const { request, authenticated, routed } = exchange;
    const { subject } = authenticated;
    const user = subject?.username;
    const origin = queryOrigin(exchange);
    const reasonFor = (permission: PermissionClass, database: string, table?: string) => {
      if (subject === undefined) return "allowed";
      // The one of the moment, since a list is filtered when the upstream has answered.
      const { snapshot } = gateway.access;
      return decideWholeDatabase(snapshot, subject, permission, database, origin, table).reason;
    };
    const account = () => accountOf(gateway.revocations, user ?? "");
    return {
      method: request.method ?? "",
      pattern: endpoint.path,
      path: routed.parameters,
      query,
      headers: request.headers,
      json: body?.json,
      members: body?.members ?? {},
      bytes: body?.bytes ?? noBody,
      user,
      // Not a getter: V8 keeps those of object literals, with the request, until it collects the
      // whole heap.
      isAdministrator: () =>
        subject === undefined || isAdministrator(gateway.access.snapshot, subject),
      defaultDatabase: gateway.configuration.auth.default_database,
      may: (...wanted) => reasonFor(...wanted) === "allowed",
      mayInside: (permission, database, table) =>
        table === undefined
          ? subject === undefined ||
            mayUseInside(gateway.access.snapshot, subject, permission, database, origin)
          : ["allowed", "not_narrowable"].includes(reasonFor(permission, database, table)),
      lookup: (lookedUp, rememberMs = 0) => this.#lookups.ask(lookedUp, rememberMs, exchange),
      seal: (kind, handle) => this.#handles.seal(kind, account(), handle),
      open: async (kind, sealed) => this.#handles.open(kind, account(), sealed),
    };
  }

  #headersFor(
    exchange: Exchange,
    { body: kind }: PresetEndpoint,
    { answer, body }: Plan,
    identity: Identity | undefined,
  ): RequestHeaders {
    const { request } = exchange;
    const isUnfit = (name: string) =>
      framingFields.has(name) ||
      (answer !== undefined && (conditional.test(name) || name === "accept-encoding"));
    const kept = presetHeaders(request.headers, this.#gateway.headers, this.#headers, isUnfit);
    // A server that goes by the type would not read the JSON that was judged, also without one.
    const { "content-type": type = body && json } = request.headers;
    const isForm = kind !== "stream" && /^application\/x-www-form-urlencoded/i.test(String(type));
    return {
      ...gatewayHeaders(exchange, identity),
      ...kept,
      ...(type !== undefined && { "content-type": isForm ? json : type }),
    };
  }

  /** The bytes of the answer are those of the upstream. */
  #send(exchange: Exchange, sent: ForwardedRequest): void {
    const sink = new ClientAnswer({
      response: exchange.response,
      addedHeaders: upstreamHeaders(exchange),
      selectHeaders: (status, raw) => safeAnswerHeaders(exchange, status, raw),
      fail: (error) => reject(this.#gateway, exchange, error),
    });
    this.#gateway.routing.databaseOf(undefined).forward(sent, sink);
  }

  async #stream(
    exchange: Exchange,
    { user, path, body: bytes, authorizeAgain }: Sent,
    headers: RequestHeaders,
    isEndless: boolean,
  ): Promise<void> {
    const { request, response } = exchange;
    exchange.sendContinue();
    exchange.verdict.noteStream();
    let framed: Record<string, string> = {};
    if (bytes === undefined) framed = framing(request.headers);
    else if (bytes.length > 0) framed = { "content-length": String(bytes.length) };
    request.url = path;
    await this.#gateway.routing.databaseOf(undefined).forwardStream({
      request,
      response,
      headers: { ...headers, ...framed },
      addedHeaders: upstreamHeaders(exchange),
      selectHeaders: (status, raw) => safeAnswerHeaders(exchange, status, raw),
      isEndless,
      // A feed would keep a connection from all others for as long as it lasts.
      ...(isEndless ? {} : { slot: { user, authorizeAgain } }),
      ...(bytes === undefined ? { body: limitedBody(this.#gateway, exchange) } : {}),
      ...(bytes !== undefined && bytes.length > 0 ? { body: Readable.from([bytes]) } : {}),
    });
  }

  async #sendChanged(
    exchange: Exchange,
    sent: ForwardedRequest,
    change: NonNullable<Plan["answer"]>,
  ): Promise<void> {
    const { response } = exchange;
    const answer = await this.#lookups.send(exchange, sent);
    requireStillGood(this.#gateway, exchange);
    exchange.verdict.requireStillAllowed?.();
    const passed = safeAnswerHeaders(exchange, answer.status, answer.headers);
    let body: Buffer = answer.body;
    if (answer.status >= 200 && answer.status < 300) {
      const read = readAnswer(answer.body);
      // It could not be filtered.
      if (read === undefined) throw brokenAnswer("the answer is not JSON");
      body = Buffer.from(JSON.stringify(await change(read)));
    }
    if (response.destroyed) return;
    const raw = answerHeaders(passed);
    response.writeHead(answer.status, [
      ...withoutFields(raw, (name) => ofBody.test(name)),
      "Content-Length",
      String(body.length),
      "Cache-Control",
      "no-store",
      ...upstreamHeaders(exchange),
    ]);
    response.end(exchange.request.method === "HEAD" ? undefined : body);
  }
}
