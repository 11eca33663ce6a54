import t from "tap";
import { cpuSecondsOf } from "../../bench/rig/program.ts";
import { eventually } from "../kit/eventually.ts";
import { queryHeaders } from "../kit/queries.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { checkRefused, openSite, sendBytes, statusesOf } from "./kit.ts";

const site = await openSite(t, { config: "[server]\nmax_body_bytes = 50000000\n" });
const { gateway, witness, token } = site;
const pid = gateway.service.child.pid ?? 0;

/** A row of so many columns that its scan, and nothing else, takes the better part of a second. */
const columns = Array.from({ length: 1_600_000 }, (_, at) => `"c${at}":0`);
const body = `{"Insert":{"database":"main","table":"t","values":[{${columns}}]}}`;

function insertBy(token: string): string {
  return wireRequest("POST /query", { ...queryHeaders(token), Connection: "close" }, body);
}

/** Sends a long body; resolves when the gateway has begun to scan it. */
async function begin(token: string): Promise<Wire> {
  const wire = await Wire.open(gateway.url);
  const before = cpuSecondsOf(pid);
  wire.send(insertBy(token));
  await eventually("it computes", () => cpuSecondsOf(pid) > before + 0.12);
  return wire;
}

t.test("a token that is revoked while its body is scanned is refused", async (t) => {
  await gateway.addUser("carol", "Owner");
  const carol = await gateway.login("carol", "carol password");
  witness.take();
  const wire = await begin(carol);
  t.equal((await gateway.send("POST", "/logout", {}, carol)).status, 200);
  checkRefused(t, await wire.untilClosed(), 401, "token_revoked", "the long body");
  t.equal(witness.take().length, 0);
  t.strictSame(statusesOf(await sendBytes(site, insertBy(token))), [200], "others are served");
});
