import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";
import { target } from "./kit.ts";

/** Asks for rows in a form; the answer's head has come, and nothing of its body was taken. */
export async function openRows(
  address: string,
  body: object,
  accept: string,
): Promise<IncomingMessage> {
  const headers = { "content-type": "application/json", accept };
  const options = { ...target(address), method: "POST", path: "/query", headers, agent: false };
  const outgoing = request(options).end(JSON.stringify(body));
  const [response]: IncomingMessage[] = await once(outgoing, "response");
  if (response === undefined) throw new Error("no response");
  return response;
}

/** The same, read to its end. */
export async function rowsAs(
  address: string,
  body: object,
  accept: string,
): Promise<{ readonly status: number; readonly type: string; readonly text: string }> {
  const response = await openRows(address, body, accept);
  const type = response.headers["content-type"] ?? "";
  return { status: response.statusCode ?? 0, type, text: await text(response) };
}

/** How a body ends: whole, or because the connection was cut; and how many lines of it have come. */
export async function endOf(
  response: IncomingMessage,
): Promise<{ readonly isCut: boolean; readonly lines: number }> {
  let lines = 0;
  try {
    for await (const chunk of response) lines += String(chunk).split("\n").length - 1;
    return { isCut: false, lines };
  } catch {
    return { isCut: true, lines };
  }
}
