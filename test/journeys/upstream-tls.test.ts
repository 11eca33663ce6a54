import { writeFileSync } from "node:fs";
import { createServer } from "node:https";
import path from "node:path";
import t, { type Test } from "tap";
import { makeCertificate } from "../kit/certificate.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { insert, select } from "../kit/queries.ts";

/** An upstream that speaks TLS as `name`, and echoes what it gets in an answer of `bytes`. */
async function encrypted(t: Test, name: string) {
  const { cert, key } = makeCertificate(name);
  const received: string[] = [];
  const state = { padding: 0, connections: 0 };
  const server = createServer({ cert, key }, (request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      received.push(Buffer.concat(pieces).toString());
      response.setHeader("Content-Type", "application/json");
      response.end(`{"data":"${"x".repeat(state.padding)}"}`);
    });
  });
  server.on("secureConnection", () => state.connections++);
  const port = await listening(t, server);
  return { cert, received, state, url: `https://localhost:${port}` };
}

async function behind(t: Test, upstream: { url: string }, trusted: string) {
  const authority = path.join(temporaryHome(t), "authority.pem");
  writeFileSync(authority, trusted);
  const env = { NODE_EXTRA_CA_CERTS: authority };
  const gateway = await startGateway(t, { upstream: upstream.url, env });
  return { gateway, token: await gateway.login() };
}

t.test("an upstream behind TLS answers short and long, on kept connections", async (t) => {
  const upstream = await encrypted(t, "localhost");
  const { gateway, token } = await behind(t, upstream, upstream.cert);
  for (const padding of [0, 5000, 20_000, 3_000_000, 1]) {
    upstream.state.padding = padding;
    const { status, text } = await gateway.query(select, token);
    t.equal(status, 200);
    t.ok(text === `{"data":"${"x".repeat(padding)}"}`, `${padding} bytes arrive as they were sent`);
  }
  const { status } = await gateway.query(insert, token);
  t.equal(status, 200);
  t.strictSame(upstream.received.at(-1), insert);
  t.equal(upstream.state.connections, 1);
});

t.test("an upstream whose certificate is not trusted gets nothing of a query", async (t) => {
  const upstream = await encrypted(t, "localhost");
  const { gateway, token } = await behind(t, upstream, makeCertificate("localhost").cert);
  t.match(await gateway.query(select, token), { status: 502 });
  t.strictSame(upstream.received, []);
});

t.test("an upstream with another one's certificate gets nothing of a query", async (t) => {
  const upstream = await encrypted(t, "elsewhere.test");
  const { gateway, token } = await behind(t, upstream, upstream.cert);
  t.match(await gateway.query(select, token), { status: 502 });
  t.strictSame(upstream.received, []);
});
