import { longBody, scan, scanInSlices } from "../../query/scan.ts";
import { gatewayHeaders, queryHeaders } from "../../upstream/headers.ts";
import { toOpForm } from "../../upstream/op-form.ts";
import { commonHeaders } from "../answer.ts";
import { type Exchange, payerOf } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import { judge } from "../judge.ts";
import type { Endpoint } from "../route.ts";
import { subjectOf } from "../subject.ts";
import { traceUpward } from "../traced.ts";

async function handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> {
  const { grammar } = gateway;
  const query = body.length < longBody ? scan(body, grammar) : await scanInSlices(body, grammar);
  const queries = gateway.placement.queriesOf(query);
  const identity = judge(gateway, exchange, subjectOf(exchange), query);
  exchange.decision = "allow";
  const { request, response, requestId, peer } = exchange;
  const { forwardedFor, proto, host } = peer;
  const isKeyed = gateway.configuration.upstream.query_form === "keyed";
  exchange.forwardedAt = performance.now();
  const headers = {
    ...queryHeaders(request.headers, gateway.headers),
    ...gatewayHeaders({ requestId, forwardedFor, proto, host, identity }),
  };
  traceUpward(gateway, exchange, "POST", headers);
  await queries.forward({
    request,
    response,
    user: payerOf(exchange),
    body: isKeyed ? body : toOpForm(body, query),
    headers,
    isRead: query.accesses.every(({ operation }) => operation === "Select"),
    answerHeaders: commonHeaders(exchange),
  });
}

/** `POST /query`: what is asked is read, judged, and forwarded byte for byte. */
export function query(bodyLimit: number): Endpoint {
  return { door: "data", bodyLimit, handle };
}
