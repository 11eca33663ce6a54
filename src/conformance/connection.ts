import { type ClientRequest, type IncomingMessage, request as requestPlain } from "node:http";
import { request as requestTls } from "node:https";
import { text } from "node:stream/consumers";
import { hostAndPort, parseTarget } from "../upstream/target.ts";
import type { Received } from "./difference.ts";
import { parseJson } from "./exact-json.ts";

/** How long an answer may take. */
const ANSWER_TIMEOUT_MS = 60_000;

/** Sends a body to `POST /query`. Rejects if no answer comes. */
export type Send = (body: string) => Promise<Received>;

/**
 * A way to send queries to `http://host:port`, `https://host:port` or `unix:/path`.
 *
 * @param authorization the `Authorization` header of each, if any
 */
export function connectTo(url: string, authorization: string | undefined): Send {
  const { origin, socketPath } = parseTarget(url);
  const request = origin.startsWith("https:") ? requestTls : requestPlain;
  const place = socketPath === undefined ? hostAndPort(origin) : { socketPath };
  const headers = {
    "content-type": "application/json",
    accept: "application/json",
    ...(authorization === undefined ? {} : { authorization }),
  };
  return async (body) => {
    const length = Buffer.byteLength(body);
    const sent = request({
      ...place,
      method: "POST",
      path: "/query",
      headers: { ...headers, "content-length": length },
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    });
    const response = await answered(sent.end(body));
    const answer = await text(response);
    return {
      status: response.statusCode ?? 0,
      type: response.headers["content-type"] ?? "",
      text: answer,
      body: parsed(answer),
    };
  };
}

function answered(request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.once("response", resolve);
    request.once("error", reject);
  });
}

function parsed(text: string): Received["body"] {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}
