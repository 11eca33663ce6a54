import { setHeaders } from "../../mcp/json-rpc.ts";
import { Refusal } from "../../refusal.ts";
import { SMALL_BODY_BYTES } from "../body.ts";
import type { Exchange } from "../exchange.ts";
import type { Gateway } from "../gateway.ts";
import type { Endpoint } from "../route.ts";
import { cutWhenStalled, guardStream } from "../stream-limits.ts";

async function handle(gateway: Gateway, exchange: Exchange, body: Buffer): Promise<void> {
  const mcp = await gateway.mcp();
  if (exchange.authenticated.principal !== undefined) guardStream(gateway, exchange);
  cutWhenStalled(exchange.response);
  exchange.verdict.allow();
  await mcp.handle(exchange, exchange.request.method === "POST" ? body : undefined);
}

/** `POST /mcp`: one message of the Model Context Protocol (Streamable HTTP). */
export function mcpMessage(bodyLimit: number): Endpoint {
  return { authentication: "mcp", bodyLimit, handle };
}

/** `GET` and `DELETE /mcp`: streams and ends of sessions, for clients of earlier revisions. */
export const mcpSession: Endpoint = { authentication: "mcp", handle };

/** Everything of the embedded authorization server, which writes its own answers. */
export const authorizationServer: Endpoint = {
  authentication: "public",
  readsBody: true,
  async handle(gateway, exchange) {
    const { request, response, requestId } = exchange;
    const { authorizationServer: open } = await gateway.mcp();
    if (open === undefined) throw new Refusal("not_found");
    const server = await open();
    setHeaders(response, gateway.transportHeaders);
    response.setHeader("X-Request-Id", requestId);
    response.setHeader("X-Content-Type-Options", "nosniff");
    const length = Number(request.headers["content-length"] ?? 0);
    if (length <= SMALL_BODY_BYTES) exchange.inviteBody();
    server.handle(request, response);
  },
};
