import type { Test } from "tap";
import { encodePart } from "../identity/forge.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway } from "../kit/gateway.ts";
import { fetchMetrics, readExposition, type ServedMetric } from "./exposition.ts";

/** The metrics that a gateway has because it takes tokens of an external issuer. */
export async function metricsOfIssuers(t: Test): Promise<[name: string, metric: ServedMetric][]> {
  const address = `127.0.0.1:${await freePort()}`;
  const iss = "http://127.0.0.1:1/";
  const issuer = `[[mcp.authorization_servers]]\nissuer = "${iss}"\nprefix = "staff"\n`;
  const config = `[metrics]\nlisten = "${address}"\n${issuer}`;
  const gateway = await startGateway(t, { config, upstream: "http://127.0.0.1:1" });
  const token = `${encodePart({ alg: "ES256", kid: "x" })}.${encodePart({ iss })}.AAAA`;
  const headers = { authorization: `Bearer ${token}` };
  t.equal((await gateway.request("/mcp", { headers })).status, 503);
  const served = readExposition(await fetchMetrics(address));
  return [...served].filter(([name]) => name.startsWith("gatehouse_issuer_"));
}
