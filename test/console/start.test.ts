import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { installNothing } from "../commands/kit.ts";
import { noTerminal, Terminal } from "../commands/terminal.ts";
import { freePort } from "../kit/free-port.ts";
import { startGateway } from "../kit/gateway.ts";
import { openSite } from "../oauth/chromium.ts";
import { signedIn, startConsole, textOf } from "./kit.ts";

const html = { headers: { accept: "text/html" } };

t.test("several workers have one console, and each says where it is", async (t) => {
  const { gateway, url } = await startConsole(t, { config: "[server]\nworkers = 2\n" });
  const client = await signedIn(t, url);
  for (let at = 0; at < 8; at++) {
    t.equal((await client.get("/state")).status, 200);
    t.match((await gateway.request("/", html)).text, `<a href="${url}">${url}</a> is the console`);
  }
});

t.test("a change made by another worker is on the page at once", async (t) => {
  const { gateway, url } = await startConsole(t, { config: "[server]\nworkers = 2\n" });
  const client = await signedIn(t, url);
  for (const name of ["bob", "carol", "dave"]) {
    await gateway.addUser(name, "ReadOnly");
    const text = textOf((await client.get("/state")).text);
    t.match(text, `${name} main + SELECT no grant → ReadOnly`);
  }
});

t.test("a gateway without a console says how to get one", async (t) => {
  const gateway = await startGateway(t);
  const { text } = await gateway.request("/", html);
  t.match(text, "<code>[console]</code> in gateway.toml");
});

t.test(
  "a greeting says where the console is, or how to get one",
  { skip: noTerminal },
  async (t) => {
    const gatehouse = installNothing(t);
    const file = path.join(gatehouse.home, "gateway.toml");
    const port = await freePort();
    const cases: [string, string | RegExp][] = [
      ["", 'off: set [console] listen = "127.0.0.1:8081"'],
      [`[console]\nlisten = "127.0.0.1:${port}"\n`, `http://127.0.0.1:${port}`],
      ['[console]\nlisten = "127.0.0.1:0"\n', /http:\/\/127\.0\.0\.1:[1-9]\d+/],
    ];
    for (const [section, where] of cases) {
      writeFileSync(file, `[server]\nport = 0\n${section}`);
      const terminal = new Terminal(t, gatehouse.home, ["serve"]);
      await terminal.until(/Next, in another terminal/);
      t.match(/Console {8}(.*)/.exec(terminal.shown)?.[1], where);
      terminal.type("\u0003");
      await terminal.ended();
    }
  },
);

t.test("an address of the console that is taken is named", async (t) => {
  const { host } = new URL(await openSite(t, "taken"));
  const config = `[console]\nlisten = "${host}"\n`;
  const gatehouse = installNothing(t);
  writeFileSync(path.join(gatehouse.home, "gateway.toml"), `[server]\nport = 0\n${config}`);
  const { code, stderr } = await gatehouse.run("serve");
  t.equal(code, 1);
  t.match(stderr, `${host} is taken by another process: choose another one with console.listen`);
});
