import type { Test } from "tap";
import { makeCertificate } from "../kit/certificate.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway, temporaryHome } from "../kit/gateway.ts";
import { tlsSection, writePair } from "../kit/tls-files.ts";
import { fetchMetrics, readExposition, type ServedMetric } from "./exposition.ts";

/** The metrics that a gateway has because it speaks TLS itself. */
export async function metricsOfTls(t: Test): Promise<[name: string, metric: ServedMetric][]> {
  const home = temporaryHome(t);
  writePair(home, makeCertificate("localhost"));
  const address = `127.0.0.1:${await freePort()}`;
  const config = `${tlsSection}[metrics]\nlisten = "${address}"\n`;
  await startGateway(t, { home, config, upstream: "http://127.0.0.1:1" });
  const served = readExposition(await fetchMetrics(address));
  return [...served].filter(([name]) => name.startsWith("gatehouse_tls_"));
}
