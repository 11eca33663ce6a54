import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import type { Test } from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import {
  type Answer,
  type RunOptions,
  startGateway,
  type TestGateway,
  temporaryHome,
} from "../kit/gateway.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

export const select = { Select: { database: "main", from: "t", columns: ["*"] } };

export interface GatewaySetup {
  gateway: TestGateway;
  upstream: RecordingUpstream;
}

/** Starts a gateway and its upstream. Both end with the test. */
export async function openGatewaySetup(t: Test, options: RunOptions = {}): Promise<GatewaySetup> {
  const upstream = await new RecordingUpstream().listen(t);
  const gateway = await startGateway(t, { ...options, upstream: upstream.url });
  return { gateway, upstream };
}

/** As `openGatewaySetup`, with an `[auth]` section that sets its own hash costs. */
export async function openSettingWith(t: Test, auth: string, home = temporaryHome(t)) {
  const upstream = await new RecordingUpstream().listen(t);
  const file = path.join(home, "own.toml");
  writeFileSync(file, `[auth]\n${auth}\n[upstream]\nurl = "${upstream.url}"\n`);
  const gateway = await startGateway(t, { home, env: { GATEHOUSE_CONFIG: file } });
  return { gateway, upstream };
}

interface RawAnswer {
  status: number;
  head: string;
  text: string;
}

/** Sends the lines of a request unchanged and reads until the gateway closes the connection. */
export async function sendRaw(url: string, lines: string[], body = ""): Promise<RawAnswer> {
  const { hostname, port, host } = new URL(url);
  const socket = connect(Number(port), hostname).setEncoding("utf8").setTimeout(PATIENCE_MS);
  socket.once("timeout", () => socket.destroy(new Error("no answer")));
  const [start, ...headers] = lines;
  const named = headers.some((line) => /^host:/i.test(line)) ? [] : [`Host: ${host}`];
  const length = body === "" ? [] : [`Content-Length: ${Buffer.byteLength(body)}`];
  const head = [start, ...named, ...headers, ...length, "Connection: close"];
  socket.write(`${head.join("\r\n")}\r\n\r\n${body}`);
  let answer = "";
  socket.on("data", (text: string) => (answer += text));
  await once(socket, "close");
  const end = answer.indexOf("\r\n\r\n");
  const status = Number(answer.split(" ")[1]);
  return { status, head: answer.slice(0, end), text: answer.slice(end + 4) };
}

/** Checks that a response is a refusal in the documented shape. */
export function checkRefusal(
  t: Test,
  answer: Answer,
  expected: { status: number; code: string; message?: string },
): void {
  const { status, code, message } = expected;
  t.equal(answer.status, status, `${code} is ${status}`);
  const place = code === "batch_member_denied" ? ["element", "reason"] : [];
  const members = ["code", ...place, "message", "request_id", "status"].sort();
  t.strictSame(Object.keys(answer.body).sort(), members);
  t.match(answer.body, { status: "error", code, message: message ?? String });
  t.equal(answer.headers.get("x-request-id"), answer.body.request_id);
  t.match(answer.headers.get("content-type"), /^application\/json/);
  if (status < 500) t.equal(answer.headers.get("x-gatehouse-decision"), "deny");
  const challenge = answer.headers.get("www-authenticate");
  if (status === 401) t.match(challenge, /^Bearer realm="/);
  else t.equal(challenge, null);
}
