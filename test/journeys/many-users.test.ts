import { writeFileSync } from "node:fs";
import path from "node:path";
import t, { type Test } from "tap";
import { grant, user } from "../access/kit.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { Service } from "../kit/process.ts";
import { residentBytes } from "../kit/process-info.ts";

/** Bytes that a gateway with so many users holds once it listens. */
async function memoryWith(t: Test, count: number): Promise<number> {
  const home = temporaryHome(t);
  writeFileSync(path.join(home, "gateway.toml"), '[upstream]\nurl = "http://127.0.0.1:1"\n');
  const names = Array.from({ length: count }, (_, index) => `user${index}`);
  const tables = names.map((name) => user(name) + grant(name, "main", "ReadOnly"));
  const text = tables.join("") + user("admin") + grant("admin", "*", "Owner");
  writeFileSync(path.join(home, "access_control.toml"), text, { mode: 0o600 });
  const service = new Service(home, ["serve", "--port", "0"]);
  t.teardown(() => service.stop());
  const { users } = await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  t.equal(users, count + 1);
  return residentBytes(service.child.pid ?? 0);
}

t.test("what reading many users has left is gone when the gateway listens", async (t) => {
  const few = await memoryWith(t, 1);
  const many = await memoryWith(t, 5000);
  t.ok(many < few + 75e6, `${many} bytes with 5,000 users, ${few} with one`);
});
