import type { ServerResponse } from "node:http";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { openSockets } from "../kit/process-info.ts";
import { Wire } from "../kit/wire.ts";
import { type Door, openSite, sendBytes, statusesOf, through } from "./kit.ts";

const site = await openSite(t);
const embedded = await openSite(t, { isEmbedded: true });
const ways = [
  ...site.doors.map((door) => ({ site, door })),
  { site: embedded, door: embedded.mcp },
];

/** All that a client may have said when it leaves before its request is whole. */
function beginnings(door: Door): string[] {
  const whole = through(door);
  const body = whole.length - door.body.length;
  return [
    ...["", "P", whole.slice(0, door.line.length), whole.slice(0, body - 3), whole.slice(0, body)],
    ...[whole.slice(0, body + 1), whole.slice(0, -1)],
    through(door, { head: "Transfer-Encoding: chunked\r\n", body: "" }),
    through(door, { head: "Transfer-Encoding: chunked\r\n", body: "5" }),
    through(door, { head: "Transfer-Encoding: chunked\r\n", body: "5\r\n{   }\r\n" }),
    through(door, { head: "Transfer-Encoding: chunked\r\n", body: "5\r\n{   }\r\n0\r\n" }),
    through(door, { head: "Expect: 100-continue\r\nContent-Length: 9\r\n", body: "" }),
  ];
}

for (const { site, door } of ways) {
  t.test(`who leaves in the middle of a request asked nothing of ${door.name}`, async (t) => {
    const pid = site.gateway.service.child.pid ?? 0;
    await sendBytes(site, through(door));
    const sockets = openSockets(pid);
    site.witness.take();
    for (const leave of ["end", "resetAndDestroy"] as const) {
      const wires = await Promise.all(
        beginnings(door).map(async (bytes) => {
          const wire = await Wire.open(site.gateway.url);
          wire.send(bytes);
          return wire;
        }),
      );
      t.strictSame(statusesOf(await sendBytes(site, through(door))), [200], "others are served");
      for (const { socket } of wires) socket[leave]();
      await Promise.all(wires.map((wire) => wire.untilClosed()));
    }
    t.equal(site.witness.take().length, 2, "the two good ones were all that went up");
    await eventually("no socket is left", () => openSockets(pid) <= sockets);
  });

  t.test(`who leaves while the upstream works is not worked for, at ${door.name}`, async (t) => {
    const { answer } = site.witness;
    t.teardown(() => {
      site.witness.answer = answer;
    });
    for (const begin of [
      () => {},
      (response: ServerResponse) => void response.writeHead(200).flushHeaders(),
      (response: ServerResponse) => void response.writeHead(200).write('{"status":'),
    ]) {
      const asked = Promise.withResolvers<void>();
      const left = Promise.withResolvers<void>();
      site.witness.answer = (_request, response) => {
        response.once("close", left.resolve);
        begin(response);
        asked.resolve();
      };
      const wire = await Wire.open(site.gateway.url);
      wire.send(through(door));
      await asked.promise;
      wire.socket.resetAndDestroy();
      await left.promise;
      t.pass("the upstream's side is closed too");
    }
    site.witness.answer = answer;
    t.strictSame(statusesOf(await sendBytes(site, through(door))), [200], "others are served");
  });
}
