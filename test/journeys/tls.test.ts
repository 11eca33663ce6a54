import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { connect, rootCertificates, setDefaultCACertificates, type TLSSocket } from "node:tls";
import t, { type Test } from "tap";
import { makeCertificate } from "../kit/certificate.ts";
import { type RunOptions, startGateway, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { listening } from "../kit/listening.ts";
import { runCommand } from "../kit/process.ts";
import { select } from "../kit/queries.ts";
import { replaceFile, tlsSection, writePair } from "../kit/tls-files.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { acceptSockets, openSocket } from "../kit/web-socket.ts";
import { Wire } from "../kit/wire.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import { callTool } from "./mcp.ts";

const first = makeCertificate("localhost");
// With two trusted certificates of one subject, a client may choose the wrong issuer.
const renewed = makeCertificate("gate.example.com", "localhost");
const YEAR = "max-age=31536000";

setDefaultCACertificates([...rootCertificates, first.cert, renewed.cert]);

async function startSecure(t: Test, { server = "", ...options }: RunOptions & { server?: string }) {
  const home = temporaryHome(t);
  writePair(home, first);
  const config = `[server]\nhost = "localhost"\n${server}\n${tlsSection}${options.config ?? ""}`;
  return startGateway(t, { ...options, home, config });
}

async function shakeHands({ url }: TestGateway, options: object = {}): Promise<TLSSocket> {
  const { port } = new URL(url);
  const socket = connect({
    host: "localhost",
    port: Number(port),
    servername: "localhost",
    ...options,
  });
  await once(socket, "secureConnect");
  return socket;
}

async function serialShown(gateway: TestGateway): Promise<string> {
  const socket = await shakeHands(gateway);
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}

t.test("queries, tools, pages and WebSockets work over TLS with HSTS", async (t) => {
  const upstream = await new RecordingUpstream().listen(t);
  acceptSockets(t, upstream);
  const gateway = await startSecure(t, {
    upstream: upstream.url,
    server: 'public_url = "https://gate.example.com"',
    config: '[[routes]]\npath = "/live"\naccess = "authenticated"\nupgrade = true\n',
  });
  t.match(gateway.url, /^https:\/\/localhost:\d+$/);
  const token = await gateway.login();
  const answers = [
    await gateway.query(select, token),
    await gateway.request("/healthz"),
    await gateway.request("/nowhere"),
    await gateway.request("/mcp", { method: "POST" }),
    await callTool(gateway, "list_tables", { database: "main" }, token),
    await gateway.request("/oauth/authorize?client_id=unknown"),
    await gateway.request("/.well-known/oauth-authorization-server"),
  ];
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 200, 404, 401, 200, 400, 200],
  );
  for (const { headers } of answers) t.equal(headers.get("strict-transport-security"), YEAR);
  t.equal(upstream.received[0]?.headers["x-forwarded-proto"], "https");

  const socket = await openSocket(`${gateway.url}/live`, token);
  await socket.echo("over TLS");
  t.equal(socket.answer.headers["strict-transport-security"], YEAR);
  socket.cut();
});

t.test("TLS before 1.2 is refused, and plain HTTP gets a hint to use https", async (t) => {
  const gateway = await startSecure(t, { upstream: "http://127.0.0.1:1" });
  const only = (version: string) => ({
    minVersion: version,
    maxVersion: version,
    ciphers: "DEFAULT@SECLEVEL=0",
  });
  for (const version of ["TLSv1", "TLSv1.1"]) {
    await t.rejects(shakeHands(gateway, only(version)), { code: /PROTOCOL_VERSION/ }, version);
  }
  for (const version of ["TLSv1.2", "TLSv1.3"]) {
    const socket = await shakeHands(gateway, only(version));
    t.equal(socket.getProtocol(), version);
    socket.destroy();
  }
  const wire = await Wire.open(gateway.url);
  wire.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2));
  const answer = await wire.untilClosed();
  t.match(answer, /^HTTP\/1\.1 400 .*\r\n\r\n{.*"message":"This port uses TLS: use https:/s);
  t.equal(answer.match(/HTTP\/1\.1/g)?.length, 1);
  await gateway.service.logged(({ reason, status }) => reason === "bad_request" && status === 400);
  const { status, headers } = await gateway.request("/healthz");
  t.equal(status, 200);
  t.equal(headers.get("strict-transport-security"), null, "without a public URL");
});

t.test("a renewed certificate is served within a second; a broken one is not", async (t) => {
  const { section, value } = await reserveMetrics();
  const gateway = await startSecure(t, { upstream: "http://127.0.0.1:1", config: section });
  const isGood = () => value("gatehouse_tls_certificate_last_reload_successful");
  const before = await serialShown(gateway);
  t.equal(await isGood(), 1);

  replaceFile(gateway.home, "fullchain.pem", renewed.cert);
  const refused = await gateway.service.logged(({ msg }) => /TLS .*refused/.test(String(msg)));
  t.match(refused, { level: "error", reason: /key\.pem: is not the key of .*fullchain\.pem$/ });
  t.equal(await isGood(), 0);
  t.equal(await serialShown(gateway), before);

  replaceFile(gateway.home, "key.pem", renewed.key);
  await gateway.service.logged(({ msg }) => msg === "TLS certificate reloaded");
  t.equal(await isGood(), 1);
  t.not(await serialShown(gateway), before);
  t.notMatch(gateway.service.output, /PRIVATE KEY/);
});

t.test("each of several processes serves TLS and reloads a renewed certificate", async (t) => {
  const gateway = await startSecure(t, { upstream: "http://127.0.0.1:1", server: "workers = 2" });
  t.match(await gateway.login(), /\./);
  writePair(gateway.home, renewed);
  for (const number of [1, 2]) {
    await gateway.service.logged(
      ({ msg, worker }) => msg === "TLS certificate reloaded" && worker === number,
    );
  }
  t.match(await gateway.login(), /\./);
});

t.test("a drain does not wait for handshakes, and finishes requests", async (t) => {
  const held = Promise.withResolvers<void>();
  const upstream = createServer((_, response) => {
    void held.promise.then(() => response.end("{}"));
  });
  const port = await listening(t, upstream);
  const asked = once(upstream, "request");
  const gateway = await startSecure(t, {
    upstream: `http://127.0.0.1:${port}`,
    server: "shutdown_grace = 3600",
  });
  const token = await gateway.login();
  const silent = await Wire.open(gateway.url);
  const idle = await shakeHands(gateway);
  const answer = gateway.query(select, token);
  await asked;
  const code = gateway.service.stop();
  await Promise.all([silent.untilClosed(), once(idle.resume(), "close")]);
  held.resolve();
  t.match(await answer, { status: 200 });
  t.equal(await code, 0);
});

t.test("an unusable certificate stops the start with the reason", async (t) => {
  const home = temporaryHome(t);
  const encrypted =
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII=\n-----END ENCRYPTED PRIVATE KEY-----\n";
  writeFileSync(path.join(home, "gateway.toml"), tlsSection);
  const refusals: [pair: typeof first, reason: RegExp][] = [
    [
      { ...first, key: renewed.key },
      /server\.tls\.key: \S+key\.pem: is not the key of \S+fullchain/,
    ],
    [{ ...first, key: encrypted }, /server\.tls\.key: \S+: is encrypted: store it without/],
    [{ ...first, key: "no key" }, /server\.tls\.key: \S+: is not a PEM private key/],
    [{ ...first, cert: "" }, /server\.tls\.certificate: \S+: is not a PEM certificate/],
  ];
  for (const [pair, reason] of refusals) {
    writePair(home, pair);
    const { code, stderr } = await runWarm(home, ["config", "check"]);
    t.equal(code, 1);
    t.match(stderr, reason);
  }
  const start = await runCommand(home, ["serve", "--port", "0"]);
  t.match(start, { code: 1, stderr: refusals.at(-1)?.[1] });
  writePair(home, first);
  const { code, stdout } = await runWarm(home, ["config", "check"]);
  t.equal(code, 0);
  t.match(stdout, /^certificate {4}ok {2}\S+fullchain\.pem \(DNS:localhost, until 20\S+Z\)$/m);
});
