import { writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { installNothing } from "../commands/kit.ts";
import { CTRL_C, noTerminal, Terminal } from "../commands/terminal.ts";

t.test(
  "a terminal shows one greeting, what each process says, and ends with Ctrl-C",
  { skip: noTerminal },
  async (t) => {
    const { home } = installNothing(t);
    writeFileSync(path.join(home, "gateway.toml"), "[server]\nworkers = 2\n");
    const terminal = new Terminal(t, home, ["serve", "--port", "0"]);
    await terminal.until(/and its password, shown only now, is \S+\n/);
    await terminal.until(/Next, in another terminal:\n\n.*\n\n/);
    const [, url = ""] = /Gatehouse \S+ listens on (\S+)/.exec(terminal.shown) ?? [];
    await fetch(`${url}/query`, { method: "POST" });
    await terminal.until(/^\d\d:\d\d:\d\d - POST \/query deny unauthenticated 401 \d+ms\n/m);
    terminal.type(CTRL_C);
    await terminal.until(/^(?:\^C)?[\d:]{8} draining: .* \(signal: SIGINT\)\n/m);
    t.equal(await terminal.ended(), 0);
    t.equal(terminal.shown.match(/listens on/g)?.length, 1);
    t.notMatch(terminal.shown, /worker is gone|ERROR/);
  },
);
