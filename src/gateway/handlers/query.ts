import { isReadOnly, type Query } from "../../query/query.ts";
import { longBody, scan, scanInSlices } from "../../query/scan.ts";
import { gatewayHeaders, queryHeaders } from "../../upstream/headers.ts";
import { fieldLines } from "../../upstream/http1/field-lines.ts";
import { inForm } from "../../upstream/query-form.ts";
import { commonHeaders } from "../answer.ts";
import { type Exchange, payerOf } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import { judge } from "../judge.ts";
import { reject } from "../reject.ts";
import { traceUpward } from "../request-tracing.ts";
import type { Endpoint } from "../route.ts";
import { requireStillGood } from "../still-good.ts";
import { subjectOf } from "../subject.ts";

function judgeAndForward(gateway: Gateway, exchange: Exchange, body: Buffer, query: Query): void {
  const queries = gateway.routing.queriesOf(query);
  const identity = judge(gateway, exchange, subjectOf(exchange), query);
  exchange.decision = "allow";
  const { request, requestId, peer } = exchange;
  const { forwardedFor, proto, host } = peer;
  exchange.forwardedAt = performance.now();
  const taken = queryHeaders(request.headers, gateway.headers);
  traceUpward(gateway, exchange, "POST", taken);
  const added = gatewayHeaders({ requestId, forwardedFor, proto, host, identity });
  queries.forward({
    sink: exchange,
    user: payerOf(exchange),
    body: inForm(gateway.configuration.upstream.query_form, body, query),
    // No name is in both: the configuration lets none through that the gateway sets.
    fields: fieldLines(taken) + fieldLines(added),
    isRead: isReadOnly(query),
    answerHeaders: commonHeaders(exchange),
    fail: (error) => reject(gateway, exchange, error),
  });
}

async function handleLong(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> {
  const isWanted = () => !exchange.response.destroyed;
  const query = await scanInSlices(body, gateway.grammar, isWanted);
  if (query === undefined || !isWanted()) return;
  requireStillGood(gateway, exchange);
  judgeAndForward(gateway, exchange, body, query);
}

function handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> | void {
  if (body.length >= longBody) return handleLong(gateway, exchange, body);
  judgeAndForward(gateway, exchange, body, scan(body, gateway.grammar));
}

/** `POST /query`: what is asked is read, judged, and forwarded byte for byte. */
export function query(bodyLimit: number): Endpoint {
  return { door: "data", bodyLimit, handle };
}
