import {
  type ClientRequest,
  type IncomingMessage,
  type RequestOptions,
  request as requestPlain,
} from "node:http";
import { request as requestTls } from "node:https";
import { text } from "node:stream/consumers";
import { hostAndPort, type UpstreamTarget } from "./target.ts";

export interface WholeAnswer {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

/**
 * Sends one request as commands do, without a connection pool. Rejects unless a complete response
 * arrives.
 */
export async function askTarget(
  { origin, socketPath }: UpstreamTarget,
  { body, ...options }: RequestOptions & { readonly body?: string | Buffer },
): Promise<WholeAnswer> {
  const request = origin.startsWith("https:") ? requestTls : requestPlain;
  const place = socketPath === undefined ? hostAndPort(origin) : { socketPath };
  const response = await answered(request({ ...place, ...options }).end(body));
  return {
    status: response.statusCode ?? 0,
    type: response.headers["content-type"] ?? "",
    text: await text(response),
  };
}

function answered(request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.once("response", resolve).once("error", reject);
  });
}
