import { type Decision, decideQuery } from "../../access/policy.ts";
import type { Query } from "../../query/operations.ts";
import { scan } from "../../query/scan.ts";
import { Refusal } from "../../refusal.ts";
import { gatewayHeaders, type Identity, queryHeaders } from "../../upstream/headers.ts";
import { toOpForm } from "../../upstream/op-form.ts";
import { commonHeaders } from "../answer.ts";
import type { Exchange } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import type { Endpoint } from "../route.ts";

/** Operations of one query that the audit names; the rest are only counted. */
const AUDITED_OPERATIONS = 16;

function noteOperations(exchange: Exchange, query: Query, decisions: readonly Decision[]): void {
  exchange.operationCount = query.accesses.length;
  exchange.operations = query.accesses
    .slice(0, AUDITED_OPERATIONS)
    .map(({ operation, database, tables }, at) => {
      const { role, entry } = decisions[at] ?? { role: undefined, entry: undefined };
      return { operation, database, tables, role, entry };
    });
}

/** What the upstream is told: each database once, in the query's order, with the role there. */
function identityOf(username: string, query: Query, decisions: readonly Decision[]): Identity {
  const roles = new Map<string, string>();
  for (const [at, { database }] of query.accesses.entries()) {
    roles.set(database, decisions[at]?.role ?? "");
  }
  return { username, roles: [...roles.values()], databases: [...roles.keys()] };
}

/**
 * Compares what the query asks for with what the caller may do.
 *
 * @returns undefined while authentication is off: then there is nobody to vouch for
 * @throws Refusal saying which rule denies it
 */
function authorize(gateway: Gateway, exchange: Exchange, query: Query): Identity | undefined {
  const { caller } = exchange;
  if (caller === undefined) {
    noteOperations(exchange, query, []);
    return undefined;
  }
  const { username } = caller.user;
  const subject = { username, tokenDatabase: caller.token.database };
  const { allowed, decisions } = decideQuery(gateway.access.snapshot, subject, query);
  noteOperations(exchange, query, decisions);
  if (allowed) return identityOf(username, query, decisions);
  const reason = decisions.at(-1)?.reason ?? "no_grant";
  if (query.batch) {
    throw new Refusal("batch_member_denied", {
      detail: `Batch[${decisions.length - 1}]: ${reason}`,
    });
  }
  throw new Refusal(reason === "allowed" ? "no_grant" : reason);
}

async function handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> {
  const query = scan(body, gateway.grammar);
  const identity = authorize(gateway, exchange, query);
  exchange.decision = "allow";
  const { request, response, requestId, peer } = exchange;
  const { forwardedFor, proto, host } = peer;
  const isKeyed = gateway.configuration.upstream.query_form === "keyed";
  await gateway.queries.forward({
    request,
    response,
    body: isKeyed ? body : toOpForm(body, query),
    headers: {
      ...queryHeaders(request.headers, gateway.headers),
      ...gatewayHeaders({ requestId, forwardedFor, proto, host, identity }),
    },
    isRead: query.accesses.every(({ operation }) => operation === "Select"),
    answerHeaders: commonHeaders(exchange),
  });
}

/** `POST /query`: what is asked is read, judged, and forwarded byte for byte. */
export function query(bodyLimit: number): Endpoint {
  return { door: "data", bodyLimit, handle };
}
