import { readFileSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import path from "node:path";
import t, { type Test } from "tap";
import { grant } from "../access/kit.ts";
import type { GatewaySetup } from "../gateway/kit.ts";
import { decodePart, readKey } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import { putInPlace, type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { tables } from "../kit/tables.ts";
import { runWarm } from "../kit/warm-command.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { type IssuerKey, makeKey, TestIssuer } from "../oauth/issuer.ts";
import { oneWayEach } from "./losses.ts";
import { openBriefly, openStaffed, soon, succeed, tokenOf } from "./staff.ts";

const config = tables("routes", [
  { path: "/public/events", access: "public" },
  { path: "/events", access: "authenticated" },
  { path: "/admin/events", access: "administrator" },
  { path: "/db/:database/events", access: "INSERT" },
]);

function keepOpen({ upstream }: GatewaySetup): ServerResponse[] {
  const streams: ServerResponse[] = [];
  upstream.answer = (_, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write("data: first\n\n");
    streams.push(response);
  };
  return streams;
}

async function openStream(gateway: TestGateway, route: string, token?: string): Promise<Wire> {
  const wire = await Wire.open(gateway.url);
  const headers: Record<string, string> = token ? { Authorization: `Bearer ${token}` } : {};
  wire.send(wireRequest(`GET ${route}`, headers));
  const answer = await wire.until(/\r\n\r\n/);
  if (!answer.startsWith("HTTP/1.1 200 ")) throw new Error(answer);
  await wire.until(/data: first/);
  return wire;
}

function sendMore(streams: readonly ServerResponse[]): void {
  for (const stream of streams) stream.write("data: more\n\n");
}

async function checkCut(
  t: Test,
  how: string,
  stream: Wire,
  upstreamSide: ServerResponse | undefined,
): Promise<void> {
  await soon(t, `cut: ${how}`, () => stream.isClosed);
  t.notMatch(stream.text, /\r\n0\r\n\r\n$/, "it does not look as if it had ended");
  await eventually("the upstream sees it", () => upstreamSide?.destroyed === true);
}

t.test("a stream is cut when its right is lost, and others stay open", async (t) => {
  const names = oneWayEach.map((_, number) => `user-${number}`);
  const grants = ["root * Owner", "eve main ReadWrite", ...names.map((n) => `${n} main ReadWrite`)];
  const setting = await openStaffed(t, grants, { config });
  const { gateway } = setting;
  const streams = keepOpen(setting);
  const root = await tokenOf(gateway, "root");
  const others = [
    await openStream(gateway, "/db/main/events", await tokenOf(gateway, "eve")),
    await openStream(gateway, "/admin/events", root),
    await openStream(gateway, "/public/events"),
  ];
  const cuts: Promise<void>[] = [];
  for (const [number, way] of oneWayEach.entries()) {
    const name = names[number] ?? "";
    const token = await tokenOf(gateway, name);
    const stream = await openStream(gateway, "/db/main/events", token);
    const upstreamSide = streams.at(-1);
    await way.act({ gateway, name, token, root });
    cuts.push(checkCut(t, way.how, stream, upstreamSide));
  }
  await Promise.all(cuts);
  const cut = () => gateway.service.log.filter(({ msg }) => msg === "an open stream is cut");
  await eventually("each is in the log", () => cut().length === oneWayEach.length);
  const codes = cut().map(({ code }) => code);
  t.strictSame(codes.sort(), oneWayEach.map(({ code }) => code).sort(), "the log says why");
  sendMore(streams);
  for (const stream of others) {
    t.notOk(stream.isClosed);
    await stream.until(/data: more/);
    stream.cut();
  }
});

t.test("a stream is cut when its token expires", async (t) => {
  const setting = await openStaffed(t, ["root * Owner", "bob main ReadWrite"], { config });
  const { gateway } = setting;
  const streams = keepOpen(setting);
  const lasting = await openStream(gateway, "/events", await tokenOf(gateway, "bob"));
  const open = (token: string) => openStream(gateway, "/events", token);
  const { opened: stream, exp } = await openBriefly(gateway, open);
  await stream.untilClosed();
  t.ok(Date.now() / 1000 >= exp, "not before its time");
  sendMore(streams);
  await lasting.until(/data: more/);
  lasting.cut();
});

t.test(
  "a stream is cut when the key of its token is revoked, not when it is rotated",
  async (t) => {
    const setting = await openStaffed(t, ["root * Owner", "bob main ReadWrite"], { config });
    const { gateway } = setting;
    const streams = keepOpen(setting);
    const run = async (...words: string[]) => (await runWarm(gateway.home, words)).stdout.trim();
    const { kid } = readKey(gateway.home);
    const opaque = await run("token", "issue", "bob", "--opaque");
    const signed = await openStream(gateway, "/events", await tokenOf(gateway, "bob"));
    const issued = await openStream(gateway, "/events", opaque);
    await run("key", "rotate");
    await eventually("the new key signs", async () => {
      return decodePart(await tokenOf(gateway, "bob"), 0).kid !== kid;
    });
    sendMore(streams);
    await signed.until(/data: more/);
    await run("key", "revoke", kid);
    const isCut = (stream: Wire) => () => {
      // A silent upstream would end it, too.
      sendMore(streams);
      return stream.isClosed;
    };
    await soon(t, "the stream of the revoked key", isCut(signed));
    t.notOk(issued.isClosed);
    writeFileSync(path.join(gateway.home, "tokens"), "", { mode: 0o600 });
    await soon(t, "the stream of a token whose record is deleted", isCut(issued));
  },
);

t.test("a stream is cut when its issuer removes the key of its token", async (t) => {
  const issuer = await TestIssuer.start(t);
  const [gone, left] = [await makeKey("gone"), await makeKey("left")];
  const file = path.join(temporaryHome(t), "keys.json");
  const publish = (...keys: IssuerKey[]) =>
    writeFileSync(file, JSON.stringify({ keys: keys.map(({ jwk }) => jwk) }));
  publish(gone, left);
  const setting = await openStaffed(t, ["root * Owner"], {
    config: `${config}${issuer.section(`jwks_file = "${file}"`)}`,
    more: grant("staff:alice", "main", "ReadOnly"),
  });
  const { gateway } = setting;
  const streams = keepOpen(setting);
  const open = async (key: IssuerKey) =>
    openStream(gateway, "/events", await issuer.sign("gatehouse", { key }));
  const [cut, kept] = [await open(gone), await open(left)];
  publish(left, await makeKey("new"));
  await checkCut(t, "its key is gone", cut, streams[0]);
  sendMore(streams);
  await kept.until(/data: more/);
  kept.cut();
});

t.test("a stream is not cut when an unrelated token or grant is lost", async (t) => {
  const grants = ["root * Owner", "rex * Owner", "bob main ReadWrite", "bob side ReadOnly"];
  const setting = await openStaffed(t, grants, { config });
  const { gateway } = setting;
  const streams = keepOpen(setting);
  const [root, rex] = [await tokenOf(gateway, "root"), await tokenOf(gateway, "rex")];
  const [kept, dropped] = [await tokenOf(gateway, "bob"), await tokenOf(gateway, "bob")];
  const lasting = await openStream(gateway, "/db/main/events", kept);
  const anyUser = await openStream(gateway, "/events", kept);
  const administrator = await openStream(gateway, "/admin/events", rex);
  const doomed = await openStream(gateway, "/events", dropped);

  await succeed(gateway.send("POST", "/logout", undefined, dropped));
  await succeed(gateway.send("DELETE", "/api/access/bob/side", undefined, root));
  await succeed(gateway.send("PUT", "/api/access/rex/*", { role: "DbAdmin" }, root));
  await soon(t, "the token that logged out", () => doomed.isClosed);
  await soon(t, "the former administrator", () => administrator.isClosed);
  sendMore(streams);
  for (const stream of [lasting, anyUser]) await stream.until(/data: more/);

  await succeed(gateway.send("DELETE", "/api/access/bob/main", undefined, root));
  await soon(t, "the grant that the stream needs", () => lasting.isClosed);
  t.notOk(anyUser.isClosed, "a route for everybody needs no grant");
  anyUser.cut();
});

t.test(
  "a stream is cut when its table's grant or its route changes, and others stay open",
  async (t) => {
    const grants = ["root * Owner", "bob main ReadWrite"];
    const more = tables("acl", [
      { username: "bob", database: "main", tables: ["orders"], role: "ReadOnly" },
    ]);
    const own = { access: "SELECT", database: "main", table: ":table" };
    const before = [
      { path: "/t/:table/events", ...own },
      { path: "/old/:name", access: "authenticated" },
      { path: "/open/:name", access: "public" },
    ];
    const setting = await openStaffed(t, grants, { config: tables("routes", before), more });
    const { gateway } = setting;
    const streams = keepOpen(setting);
    const token = await tokenOf(gateway, "bob");
    const orders = await openStream(gateway, "/t/orders/events", token);
    const items = await openStream(gateway, "/t/items/events", token);
    const old = await openStream(gateway, "/old/a", token);
    const taken = await openStream(gateway, "/old/b?x=1", token);
    const closed = await openStream(gateway, "/open/a");
    const open = await openStream(gateway, "/open/b");

    await gateway.edit((text) => text.replace('role = "ReadOnly"', 'role = "None"'));
    await soon(t, "the table's grant", () => orders.isClosed);
    t.notOk(items.isClosed, "another table");

    const file = path.join(gateway.home, "gateway.toml");
    const after = [
      { path: "/open/a", access: "authenticated" },
      { path: "/old/b", access: "authenticated", query: [] },
      { path: "/old/:any", access: "authenticated" },
      { path: "/open/:name", access: "public" },
      { path: "/t/:table/events", ...own },
    ];
    const text = readFileSync(file, "utf8").replace(/\[\[routes\]\].*$/s, tables("routes", after));
    await putInPlace(file, text);
    await soon(t, "a route that now requires a user", () => closed.isClosed);
    await soon(t, "a route that now takes no parameter", () => taken.isClosed);
    sendMore(streams);
    for (const stream of [items, old, open]) {
      await stream.until(/data: more/);
      stream.cut();
    }
  },
);
