/** Gateways that serve each metric, with traffic that makes the metrics move. */
import type { Test } from "tap";
import { type GatewaySetup, openGatewaySetup, select } from "../gateway/kit.ts";
import { encodePart } from "../identity/forge.ts";
import { makeCertificate } from "../kit/certificate.ts";
import { eventually } from "../kit/eventually.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { insert } from "../kit/queries.ts";
import { tlsSection, writePair } from "../kit/tls-files.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { makeStore } from "../store/kit.ts";
import { readExposition, reserveMetrics, type ServedMetric } from "./exposition.ts";

type Metrics = Awaited<ReturnType<typeof reserveMetrics>>;

/** A gateway over two upstreams. */
export async function openMeasured(
  t: Test,
  workers: number,
): Promise<GatewaySetup & { metrics: Metrics }> {
  const metrics = await reserveMetrics();
  const other = await new RecordingUpstream().listen(t);
  const elsewhere = `[[upstream.databases]]\ndatabases = ["elsewhere"]\nurl = "${other.url}"\n`;
  const config = `connections = ${workers}\n${elsewhere}${metrics.section}[server]\nworkers = ${workers}\n`;
  return { ...(await openGatewaySetup(t, { config })), metrics };
}

/** Sends requests that make every metric move. */
export async function exercise({ gateway, upstream }: GatewaySetup): Promise<void> {
  const token = await gateway.login();
  const rita = await gateway.addUser("rita", "ReadOnly");
  await gateway.query(insert, rita);
  await gateway.query({ Batch: [select, select] }, rita);
  await gateway.query(select, "a.b.c");
  await gateway.query(select, token);
  const forwarded: (() => void)[] = [];
  upstream.answer = (_request, response) => forwarded.push(() => response.end("{}"));
  const waiting = [gateway.query(select, token), gateway.query(select, rita)];
  for (const at of [0, 1]) {
    await eventually(`query ${at} was forwarded`, () => forwarded.length > at);
    forwarded[at]?.();
  }
  await Promise.all(waiting);
  upstream.answer = (_request, response) => {
    response.writeHead(200, { "content-length": 10 }).write("[1");
    setTimeout(() => response.destroy(), 10);
  };
  await gateway.query(select, token).catch(() => "cut");
  upstream.answer = (_request, response) => response.destroy();
  await gateway.query(insert, token);
}

/** All metrics that a gateway can serve, by name. */
export async function everyMetric(t: Test): Promise<Map<string, ServedMetric>> {
  const setting = await openMeasured(t, 1);
  await exercise(setting);
  const served = readExposition(await setting.metrics.read());
  const add = async ({ read }: Metrics, prefix: string) => {
    for (const [name, metric] of readExposition(await read())) {
      if (name.startsWith(prefix)) served.set(name, metric);
    }
  };

  const tls = await reserveMetrics();
  const home = temporaryHome(t);
  writePair(home, makeCertificate("localhost"));
  const unused = "http://127.0.0.1:1";
  await startGateway(t, { home, config: tlsSection + tls.section, upstream: unused });
  await add(tls, "gatehouse_tls_");

  const issuers = await reserveMetrics();
  const iss = "http://127.0.0.1:1/";
  const issuer = `[[mcp.authorization_servers]]\nissuer = "${iss}"\nprefix = "staff"\n`;
  const gateway = await startGateway(t, { config: issuers.section + issuer, upstream: unused });
  const token = `${encodePart({ alg: "ES256", kid: "x" })}.${encodePart({ iss })}.AAAA`;
  t.equal((await gateway.get("/mcp", token)).status, 503);
  await add(issuers, "gatehouse_issuer_");

  const replica = await reserveMetrics();
  const store = await makeStore(t);
  await store.replica(store.url, store.makeHome(), replica.section);
  await add(replica, "gatehouse_store_");
  return served;
}
