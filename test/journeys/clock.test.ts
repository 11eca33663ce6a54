import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { openSetting } from "../gateway/kit.ts";
import { decodePart } from "../identity/forge.ts";
import { insertRefusal, openStaffed, succeed, tokenOf } from "./staff.ts";

/** A clock that SIGUSR2 sets ahead by more than the longest token lives, and the next one back. */
const jumpingClock = `
const { now } = Date;
let ahead = 0;
Date.now = () => now() + ahead;
process.on("SIGUSR2", () => (ahead = ahead === 0 ? 400 * 24 * 3600 * 1000 : 0));
`;

t.test("a clock that jumps ahead and back revives no token, and is told of", async (t) => {
  const preload = `data:text/javascript;base64,${btoa(jumpingClock)}`;
  const env = { NODE_OPTIONS: `--import=${preload}` };
  const { gateway } = await openStaffed(t, ["root * Owner", "bob main ReadWrite"], { env });
  const { child } = gateway.service;
  const jumped = (isAhead: boolean) =>
    gateway.service.logged(
      ({ msg, seconds }) =>
        msg === "the system's clock has jumped" && Number(seconds) > 0 === isAhead,
    );
  const dead = await tokenOf(gateway, "bob");
  await succeed(gateway.send("POST", "/logout", undefined, dead));

  child.kill("SIGUSR2");
  await jumped(true);
  t.equal(await insertRefusal(gateway, dead), "token_expired");
  const later = await tokenOf(gateway, "bob");
  await succeed(gateway.send("POST", "/logout", undefined, later));

  child.kill("SIGUSR2");
  await jumped(false);
  t.equal(await insertRefusal(gateway, dead), "token_revoked");
  const written = readFileSync(path.join(gateway.home, "revocations"), "utf8");
  t.match(written, String(decodePart(dead, 1).jti), "nothing was pruned");
  await gateway.service.stop();
  const { gateway: restarted } = await openSetting(t, { home: gateway.home });
  t.equal(await insertRefusal(restarted, dead), "token_revoked");
});
