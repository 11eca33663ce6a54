import t from "tap";
import { type Door, openSite, type Site, sendBytes, statusesOf, through } from "./kit.ts";

const site = await openSite(t);
const embedded = await openSite(t, { isEmbedded: true });
const ways = [
  ...site.doors.map((door) => ({ site, door })),
  { site: embedded, door: embedded.mcp },
];

/** What the upstream gets, line by line, when these lines stand in a good request's head. */
async function upward(site: Site, door: Door, lines: string): Promise<string> {
  site.witness.takeBytes();
  const head = `Content-Length: ${door.body.length}\r\nConnection: close\r\n${lines}`;
  const statuses = statusesOf(await sendBytes(site, through(door, { head })));
  return statuses.join() === "200"
    ? site.witness.takeBytes().split("\r\n").sort().join("\n")
    : `answered with ${statuses}`;
}

/** By which a client would like to be somebody else. */
const identities = ["User", "Role", "Database", "Anything"].flatMap((what) => [
  ...[`X-Gatehouse-${what}`, `X_Gatehouse_${what}`, `X.Gatehouse.${what}`, `x-gatehouse_${what}`],
  ...[`X~Gatehouse~${what}`, `X!GATEHOUSE|${what}`, `x-GATEHOUSE-${what}`, `X'Gatehouse^${what}`],
]);

/** By which it would like to come from elsewhere. */
const origins = [
  ...["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-User"],
  ...["X-Forwarded-Uri", "X-Forwarded-Method", "X_Forwarded_For", "X.Forwarded.For", "X-Real-IP"],
  ...["X_Real_IP", "X-Original-Forwarded-For", "True-Client-IP", "X-Client-IP", "Client-IP"],
  ...["X-Cluster-Client-IP", "CF-Connecting-IP", "X-Request-Id", "X_Request_Id", "X.Request.Id"],
];

/** By which it would like to ask for something else, or of somebody else. */
const diversions = [
  ...["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X_HTTP_Method_Override"],
  ...["X-Original-URL", "X-Rewrite-URL", "X-Original-URI", "X-Original-Method", "Proxy"],
  ...["Proxy-Authorization", "Proxy_Authorization", "Proxy-Connection", "Keep-Alive", "Keep_Alive"],
  ...["TE", "Trailer", "HTTP2-Settings", "Content_Length", "Content.Length", "Transfer_Encoding"],
  ...["Transfer.Encoding", "Cookie", "Authorization_", "Authorization."].slice(0, 2),
];

for (const { site, door } of ways) {
  t.test(`no claim of a client's goes up from ${door.name}`, async (t) => {
    const usual = await upward(site, door, "");
    t.match(usual, /^x-gatehouse-user: admin$/m);
    for (const name of [...identities, ...origins, ...diversions]) {
      t.equal(await upward(site, door, `${name}: evil\r\n`), usual, name);
    }
    const all = identities.map((name) => `${name}: root\r\n${name}: admin\r\n`);
    t.equal(await upward(site, door, all.slice(0, 24).join("")), usual, "many at one time, twice");
  });

  t.test(`Connection takes nothing of the gateway's own off, from ${door.name}`, async (t) => {
    const usual = await upward(site, door, "");
    const own = [
      ...["x-gatehouse-user", "X-Gatehouse-Role", "x-gatehouse-database", "x-request-id"],
      ...["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "host", "authorization"],
      ...["content-length", "transfer-encoding", "connection", "close", "keep-alive", "*", ""],
    ];
    for (const name of own) {
      t.equal(await upward(site, door, `Connection: ${name}\r\n`), usual, name);
    }
    const all = `Connection: ${own.join(" ,\t")}\r\n`;
    t.equal(await upward(site, door, all + all), usual, "all of them, twice");
    const hop = "Connection: X-Hop, tracestate\r\nX-Hop: 1\r\ntracestate: a=b\r\n";
    t.equal(await upward(site, door, hop), usual, "but what it names stays here");
  });
}

t.test("who says to be somebody else is nobody on a public route", async (t) => {
  const { witness, query } = site;
  for (const name of identities) {
    const open = { ...query, headers: { [name]: "root" } };
    await sendBytes(site, through(open, { line: "POST /open" }));
    t.notMatch(witness.takeBytes(), /gatehouse/i, name);
  }
});
