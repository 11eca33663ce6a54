import { chmodSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { openSetting } from "../gateway/kit.ts";
import { runCommand } from "../kit/process.ts";
import { readKey } from "./forge.ts";

t.test("a key file that others may read stops the start and says what mends it", async (t) => {
  const { gateway } = await openSetting(t);
  const { home } = gateway;
  const file = path.join(home, "keys", `${readKey(home).kid}.json`);
  await gateway.service.stop();
  for (const mode of [0o644, 0o660, 0o602]) {
    chmodSync(file, mode);
    const { code, stdout, stderr } = await runCommand(home, ["serve", "--port", "0"]);
    t.equal(code, 1, mode.toString(8));
    t.match(`${stdout}${stderr}`, `chmod 600 ${file}`);
  }
  chmodSync(file, 0o644);
  const { gateway: lenient } = await openSetting(t, { home, auth: "check_permissions = false" });
  t.equal((await lenient.request("/healthz")).status, 200);
});

t.test("a key file that is broken stops the start without a word of its content", async (t) => {
  const { gateway } = await openSetting(t);
  const { home } = gateway;
  const { kid, jwk } = readKey(home);
  const file = path.join(home, "keys", `${kid}.json`);
  const whole = readFileSync(file, "utf8");
  await gateway.service.stop();
  const broken = [
    whole.slice(0, -20),
    "",
    "[]",
    whole.replace('"kid"', '"name"'),
    whole.replace("ES256", "ES512"),
    whole.replace('"P-256"', '"P-999"'),
    whole.replace('"kty": "EC"', '"kty": "RSA"'),
    whole.replace(`"d": "${jwk.d}"`, `"e": "${jwk.d}"`),
  ];
  for (const text of broken) {
    writeFileSync(file, text);
    const { code, stdout, stderr } = await runCommand(home, ["serve", "--port", "0"]);
    t.equal(code, 1);
    t.match(`${stdout}${stderr}`, file);
    t.notMatch(`${stdout}${stderr}`, String(jwk.d));
  }
});

t.test("keys without an access file stop the start with what to do", async (t) => {
  const { gateway } = await openSetting(t);
  await gateway.service.stop();
  rmSync(gateway.accessFile);
  const { code, stdout, stderr } = await runCommand(gateway.home, ["serve", "--port", "0"]);
  t.equal(code, 1);
  const output = `${stdout}${stderr}`;
  t.match(output, "restore the file");
  t.match(output, /`\/\S+\/gatehouse user add <name> --admin`/);
  t.match(output, "gatehouse user add <name> --admin");
  t.notOk(readdirSync(gateway.home).includes("access_control.toml"), "no new administrator");
});
