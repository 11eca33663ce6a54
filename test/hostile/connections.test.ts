import { readFileSync } from "node:fs";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { residentBytes } from "../kit/process-info.ts";
import { acceptSockets, openSocket } from "../kit/web-socket.ts";
import { Wire } from "../kit/wire.ts";
import { openSite, type Site, sendBytes, statusesOf, through } from "./kit.ts";
import { Witness } from "./witness.ts";

const bye = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
const keep = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

/** As many connections as this process and the gateway have descriptors for, 10,000 at most. */
function manyConnections(): number {
  const limits = readFileSync("/proc/self/limits", "utf8");
  const files = Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1]);
  return Math.min(10_000, Math.floor(files / 2) - 100);
}

/** Opens connections in groups, so that none waits too long for being taken. */
async function openMany({ gateway }: Site, count: number): Promise<Wire[]> {
  const wires: Wire[] = [];
  while (wires.length < count) {
    const group = Array.from({ length: Math.min(250, count - wires.length) }, async () => {
      const wire = await Wire.open(gateway.url);
      wire.send(keep);
      await wire.until(/"version"/);
      return wire;
    });
    wires.push(...(await Promise.all(group)));
  }
  return wires;
}

t.test("connections that are kept and idle are in nobody's way", async (t) => {
  const site = await openSite(t);
  const pid = site.gateway.service.child.pid ?? 0;
  const before = residentBytes(pid);
  const count = manyConnections();
  const wires = await openMany(site, count);
  t.teardown(() => wires.map((wire) => wire.cut()));
  for (const door of site.doors) {
    t.strictSame(statusesOf(await sendBytes(site, through(door))), [200], door.name);
  }
  t.ok(
    wires.every(({ isClosed }) => !isClosed),
    `${count} are open`,
  );
  const each = (residentBytes(pid) - before) / count;
  t.ok(each < 100_000, `${Math.round(each / 1024)} KiB each`);
});

t.test("with few file descriptors the gateway turns clients away, and lives", async (t) => {
  const site = await openSite(t, { limits: "-n 64" });
  const { service, url } = site.gateway;
  const wires = await Promise.all(Array.from({ length: 100 }, () => Wire.open(url)));
  t.teardown(() => wires.map((wire) => wire.cut()));
  // One that still waits to be taken cannot be told from one that is kept, but by an answer.
  for (const wire of wires) wire.send(keep);
  const isServed = ({ text }: Wire) => text.includes('"version"');
  await eventually("each is served or turned away", () =>
    wires.every((wire) => wire.isClosed || isServed(wire)),
  );
  const warning = await service.logged(({ level, turnedAway }) => level === "warn" && !!turnedAway);
  t.match(warning, { openFilesLimit: 64, msg: /more are turned away/ });

  const kept = wires.filter(isServed);
  t.ok(kept.length >= 5 && kept.length <= 20, `${kept.length} are kept`);
  for (const wire of kept) wire.send(through(site.route));
  for (const wire of kept) t.strictSame(statusesOf(await wire.untilClosed()), [200, 200]);
  await eventually("who comes then is served", async () => {
    const text = await sendBytes(site, through(site.query)).catch(() => "");
    return statusesOf(text)[0] === 200;
  });
  await site.gateway.edit((text) => `${text}\n# still read\n`);
  const reloaded = await service.logged(({ msg }) => /reload/.test(String(msg)));
  t.ok(reloaded, "and its files are read again");
  t.equal(service.child.exitCode, null);
});

t.test("a flood of connections that say nothing is let go of", async (t) => {
  const site = await openSite(t, { config: "[server]\nrequest_timeout = 1\n", limits: "-n 64" });
  const wires = await Promise.all(Array.from({ length: 30 }, () => Wire.open(site.gateway.url)));
  t.teardown(() => wires.map((wire) => wire.cut()));
  await eventually("all are closed", () => wires.every(({ isClosed }) => isClosed));
  t.match(await sendBytes(site, bye), /^HTTP\/1\.1 200 /);
});

t.test("however often it is asked, readyz connects to the upstream once in a second", async (t) => {
  const { gateway, witness } = await openSite(t);
  const before = witness.connections;
  const start = performance.now();
  const answers = await Promise.all(Array.from({ length: 200 }, () => gateway.request("/readyz")));
  t.ok(answers.every(({ status }) => status === 200));
  const seconds = Math.ceil((performance.now() - start) / 1000);
  t.ok(witness.connections - before <= seconds, `${witness.connections - before} in ${seconds} s`);
  await witness.close();
  await eventually("it tells of the loss", async () => {
    return (await gateway.request("/readyz")).status === 503;
  });
  witness.server.listen(0);
});

t.test("sockets count among the connections that there may be", async (t) => {
  const witness = new Witness();
  await witness.listen();
  t.teardown(() => witness.close());
  const config = '[[routes]]\npath = "/public/live"\naccess = "public"\nupgrade = true\n';
  const few = await startGateway(t, { upstream: witness.url, config, limits: "-n 64" });
  acceptSockets(t, witness);
  const clients = [await openSocket(`${few.url}/public/live`)];
  await t.rejects(async () => {
    for (;;) clients.push(await openSocket(`${few.url}/public/live`));
  });
  t.ok(clients.length >= 4 && clients.length < 32, `${clients.length} were let in`);
  for (const client of clients) await client.echo("here");
  for (const client of clients) client.cut();
  await eventually("there is room again", async () => {
    const client = await openSocket(`${few.url}/public/live`).catch(() => undefined);
    client?.cut();
    return client !== undefined;
  });
});
