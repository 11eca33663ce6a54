import { isReadOnly } from "../query/query.ts";
import { QueryRefused } from "../query/refusal.ts";
import { longBody, scan, scanInSlices } from "../query/scan.ts";
import { Refusal } from "../refusal.ts";
import type { QueryAnswer } from "../upstream/buffered-answer.ts";
import { gatewayHeaders, type Identity } from "../upstream/headers.ts";
import { fieldLines } from "../upstream/http1/field-lines.ts";
import { givenUp } from "../upstream/query-client.ts";
import { inForm } from "../upstream/query-form.ts";
import { noteDenial } from "./denial.ts";
import { type Exchange, payerOf } from "./exchange.ts";
import type { Gateway } from "./gateway.ts";
import { judge } from "./judge.ts";
import { traceUpward } from "./request-tracing.ts";

/** The headers of what the gateway itself asks of the database for a caller. */
export function ownHeaders(
  { headers: { authorization } }: Gateway,
  { requestId, peer }: Exchange,
  identity: Identity | undefined,
): Record<string, string> {
  const { forwardedFor, proto, host } = peer;
  return {
    ...gatewayHeaders({ requestId, forwardedFor, proto, host, identity }),
    ...(authorization === undefined ? {} : { authorization }),
  };
}

/** How a tool's query is carried out. */
export interface AskOptions {
  /** Gives the query up. */
  readonly signal: AbortSignal;
  /** Bytes of the answer that are held; the user's account bears them until it has gone out. */
  readonly largest: number;
}

/**
 * Judges, notes and forwards a query that a tool asks for its caller, exactly as `POST /query`
 * does, and gives back the answer.
 *
 * @throws QueryRefused, or a Refusal, which are noted too
 */
export async function ask(
  gateway: Gateway,
  exchange: Exchange,
  body: Buffer,
  { signal, largest }: AskOptions,
): Promise<QueryAnswer> {
  try {
    const { grammar } = gateway;
    const isLong = body.length >= longBody;
    const isWanted = () => !signal.aborted;
    const query = isLong ? await scanInSlices(body, grammar, isWanted) : scan(body, grammar);
    if (query === undefined || signal.aborted) throw givenUp();
    const queries = gateway.routing.queriesOf(query);
    const identity = judge(gateway, exchange, exchange.principal?.subject, query);
    exchange.decision = "allow";
    const headers = {
      "content-type": "application/json",
      ...ownHeaders(gateway, exchange, identity),
    };
    exchange.forwardedAt ??= performance.now();
    const upward = traceUpward(gateway, exchange, "POST", headers);
    const form = gateway.configuration.upstream.query_form;
    const sent = { body: inForm(form, body, query), fields: fieldLines(headers) };
    const hold = (bytes: number) => gateway.budget.take(exchange, bytes);
    const user = payerOf(exchange);
    const answer = await queries.ask({
      user,
      isRead: isReadOnly(query),
      ...sent,
      signal,
      largest,
      hold,
    });
    upward?.end(answer.status);
    if (answer.status >= 500) gateway.metrics.upstreamError();
    return answer;
  } catch (error) {
    if (error instanceof Refusal) noteDenial(exchange, error.code, error.status);
    if (error instanceof QueryRefused) noteDenial(exchange, error.code, 400);
    throw error;
  }
}
