import t from "tap";
import { grant } from "../access/kit.ts";
import { sendRaw } from "../gateway/kit.ts";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { startGateway } from "../kit/gateway.ts";
import { select } from "../kit/queries.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { statelessCall } from "../mcp/messages.ts";
import { TestIssuer } from "../oauth/issuer.ts";

const publicUrl = "https://gate.example.com";
const issuer = await TestIssuer.start(t);
const upstream = await new RawUpstream((socket) => {
  socket.write(wireAnswer('{"status":"success","data":[]}'));
}).listen();
t.teardown(() => upstream.close());
const gateway = await startGateway(t, {
  home: await staffedHome(t, ["root * Owner"], grant("staff:alice", "main", "ReadWrite")),
  upstream: upstream.url,
  config: `[server]\npublic_url = "${publicUrl}"\n[[mcp.authorization_servers]]\nissuer = "${issuer.url}"\nprefix = "staff"\n`,
});
const ofGateway = await tokenOf(gateway, "root");
const ofIssuer = await issuer.sign(`${publicUrl}/mcp`, { claims: { jti: "j-1" } });
const list = statelessCall("tools/list");

const doors = [
  { name: "a query", line: "POST /query", body: select, headers: {}, token: ofGateway },
  { ...list, name: "/mcp with a login token", line: "POST /mcp", token: ofGateway },
  { ...list, name: "/mcp with another issuer's token", line: "POST /mcp", token: ofIssuer },
];

/** Spellings of a header with a good token that are the token's own. */
const right = [
  (token: string) => `Bearer ${token}`,
  (token: string) => `bearer ${token}`,
  (token: string) => `BEARER   ${token}  `,
  (token: string) => `Bearer ${token}\t`,
];

/** Spellings that a lenient reader would take for the same. */
const wrong = [
  (token: string) => `Bearer ${token.slice(0, -4)} ${token.slice(-4)}`,
  (token: string) => `Bearer ${token.slice(0, -4)}\t${token.slice(-4)}`,
  (token: string) => `Bearer ${token.replaceAll(".", ". ")}`,
  (token: string) => `Bearer ${token.replaceAll(".", " .")}`,
  (token: string) => `Bearer ${token} ${token}`,
  (token: string) => `Bearer ${token}, Bearer ${token}`,
  (token: string) => `Bearer ${token},`,
  (token: string) => `Bearer ${token}=`,
  (token: string) => `Bearer ${token}==`,
  (token: string) => `Bearer ${token}.`,
  (token: string) => `Bearer ${token}\u00a0`,
  (token: string) => `Bearer \u00a0${token}`,
  (token: string) => `Bearer "${token}"`,
  (token: string) => `Bearer \t${token}`,
  (token: string) => `Bearer\t${token}`,
  (token: string) => `Bearer${token}`,
  (token: string) => `Bearer token=${token}`,
  (token: string) => `Bearer Bearer ${token}`,
  (token: string) => `Basic ${token}`,
  (token: string) => `Bearer ${token}${"A".repeat(12_000)}`,
  (token: string) => `Bearer ${token.replace(/..$/, "+/")}`,
  () => "Bearer",
  () => "Bearer .",
  () => "Bearer ..",
];

for (const { name, line, body, headers, token } of doors) {
  t.test(`a token has one spelling at ${name}`, async (t) => {
    const send = async (authorization: string) => {
      const all = { "Content-Type": "application/json", ...headers };
      const fields = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
      const lines = [`${line} HTTP/1.1`, ...fields, `Authorization: ${authorization}`];
      return sendRaw(gateway.url, [...lines, "Host: gate.example.com"], body);
    };
    for (const spell of right) t.equal((await send(spell(token))).status, 200, String(spell));
    for (const spell of wrong) {
      const { status, head, text } = await send(spell(token));
      t.equal(status, 401, String(spell));
      t.equal(JSON.parse(text).code, "token_invalid", String(spell));
      t.match(head, /^www-authenticate: bearer /im, String(spell));
    }
  });
}
