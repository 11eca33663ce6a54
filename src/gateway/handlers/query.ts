import type { Query } from "../../query/query.ts";
import { longBody, scan, scanInSlices } from "../../query/scan.ts";
import { queryHeaders } from "../../upstream/headers.ts";
import { commonHeaders } from "../answer.ts";
import { requireStillGood } from "../authentication.ts";
import { type Exchange, payerOf } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import { admit } from "../query-flow.ts";
import { reject } from "../reject.ts";
import type { Endpoint } from "../route.ts";

function judgeAndForward(gateway: Gateway, exchange: Exchange, body: Buffer, query: Query): void {
  const taken = queryHeaders(exchange.request.headers, gateway.headers);
  const admitted = admit(gateway, exchange, body, query, taken);
  admitted.queries.forward({
    sink: exchange,
    user: payerOf(exchange),
    body: admitted.body,
    fields: admitted.fields,
    isRead: admitted.isRead,
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
  return { authentication: "data", bodyLimit, handle };
}
