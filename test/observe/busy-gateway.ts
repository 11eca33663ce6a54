/** A gateway with metrics, and traffic that makes each of them move. */
import type { Test } from "tap";
import { openSetting, type Setting, select } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { freePort } from "../kit/free-port.ts";
import { insert } from "../kit/queries.ts";
import { RecordingUpstream } from "../kit/upstream.ts";

/** A gateway with metrics over databases at two places, and the address of the metrics. */
export async function openCounted(
  t: Test,
  workers: number,
): Promise<Setting & { address: string }> {
  const address = `127.0.0.1:${await freePort()}`;
  const server = `[server]\nworkers = ${workers}\n`;
  const other = await new RecordingUpstream().listen(t);
  const elsewhere = `[[upstream.databases]]\ndatabases = ["elsewhere"]\nurl = "${other.url}"\n`;
  const metrics = `[metrics]\nlisten = "${address}"\n`;
  const config = `connections = ${workers}\n${elsewhere}${metrics}${server}`;
  return { ...(await openSetting(t, { config })), address };
}

/** Sends what makes every metric move. */
export async function stir({ gateway, upstream }: Setting): Promise<void> {
  const token = await gateway.login();
  const rita = await gateway.addUser("rita", "ReadOnly");
  await gateway.query(insert, rita);
  await gateway.query({ Batch: [select, select] }, rita);
  await gateway.query(select, "a.b.c");
  await gateway.query(select, token);
  const held: (() => void)[] = [];
  upstream.answer = (_request, response) => held.push(() => response.end("{}"));
  const waiting = [gateway.query(select, token), gateway.query(select, rita)];
  await eventually("one has gone up", () => held.length > 0);
  held[0]?.();
  await eventually("the other has too", () => held.length > 1);
  held[1]?.();
  await Promise.all(waiting);
  upstream.answer = (_request, response) => {
    response.writeHead(200, { "content-length": 10 }).write("[1");
    setTimeout(() => response.destroy(), 10);
  };
  await gateway.query(select, token).catch(() => "cut");
  upstream.answer = (_request, response) => response.destroy();
  await gateway.query(insert, token);
}
