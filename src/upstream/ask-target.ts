import {
  type ClientRequest,
  type IncomingMessage,
  type RequestOptions,
  request as requestPlain,
} from "node:http";
import { request as requestTls } from "node:https";
import { text } from "node:stream/consumers";
import { hostAndPort, type UpstreamTarget } from "./target.ts";

/** An answer, read whole. */
export interface WholeAnswer {
  readonly status: number;
  /** The `Content-Type`. */
  readonly type: string;
  readonly text: string;
}

/** Asks a target as a command does, apart from any connection pool. Rejects if no whole answer comes. */
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
