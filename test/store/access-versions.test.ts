import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Test } from "tap";
import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { ADMIN_PASSWORD, temporaryHome } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { insert, makeStore, queryStatus, type TestStore } from "./kit.ts";

/** A store with alice, who reads `main`, and dora, who is disabled. */
async function withUsers(t: Test): Promise<TestStore> {
  const store = await makeStore(t, {}, await sharedServer());
  await store.addUser("alice", "ReadOnly");
  await store.addUser("dora");
  await store.good(["user", "disable", "dora"]);
  return store;
}

async function exportTo(store: TestStore, edit: (text: string) => string): Promise<string> {
  const file = path.join(store.home, "edited.toml");
  writeFileSync(file, edit(await store.good(["access", "export"])));
  return file;
}

const raised = (text: string) => text.replace('"ReadOnly"', '"ReadWrite"');

/** The parts of users that an edit cannot change. */
function accounts(store: TestStore): Promise<Record<string, unknown>[]> {
  return store.sql(
    `select username, record->'user'->>'password_hash' as hash, record->'user'->>'disabled' as disabled,
      record->'user'->>'tokens_valid_after' as after from gatehouse.users order by username`,
  );
}

t.test("an edited export takes effect at every replica", async (t) => {
  const store = await withUsers(t);
  const replica = await store.replica();
  const token = await replica.login("alice", "alice password");
  const before = await accounts(store);
  const exported = await store.good(["access", "export"]);
  t.match(exported, /^# access version \d+\n/);
  t.notMatch(exported, /password_hash|disabled|tokens_valid_after/);

  const file = await exportTo(store, (text) =>
    raised(text)
      .replace(
        'username = "alice"\n',
        'username = "alice"\nattributes = { tenant = "acme" }\nsame_as = "staff:alice"\n',
      )
      .concat(
        '\n[[users]]\nusername = "staff:eve"\nattributes = { tenant = "b" }\n',
        '\n[[acl]]\nusername = "staff:eve"\ndatabase = "main"\nrole = "ReadOnly"\n',
        '\n[[boundaries]]\nvia = "mcp"\ndatabase = "main"\nrole = "ReadOnly"\n',
      ),
  );
  const lines = [
    "alice gains INSERT, UPDATE, DELETE on main (ReadOnly to ReadWrite)",
    "staff:eve gains SELECT on main (None to ReadOnly)",
    "alice: attributes changed, which may affect row filters",
    "alice is now the same person as staff:alice",
    "boundary added: ",
  ];
  const dry = await store.good(["access", "apply", file, "--dry-run"]);
  for (const line of lines) t.ok(dry.includes(line), `${line} in ${dry}`);
  t.equal(await store.good(["access", "export"]), exported, "a dry run changes nothing");
  t.equal((await replica.query(insert, token)).status, 403);

  const applied = await store.good(["access", "apply", file]);
  for (const line of lines) t.ok(applied.includes(line), `${line} in ${applied}`);
  t.match(applied, /Now version \d+\.\n$/);
  t.equal((await replica.query(insert, token)).status, 200);
  t.match(
    await store.good(["access", "export"]),
    /username = "alice".*\nsame_as = "staff:alice"\n/s,
  );
  const after = await accounts(store);
  t.match(after, [...before, { username: "staff:eve", hash: null }]);

  const again = await exportTo(store, (text) => text);
  t.match(await store.good(["access", "apply", again]), /^no user gains.*\nStill version/);
});

const shared = await withUsers(t);

t.test("an export is outdated by another change, but not by a revocation", async (t) => {
  const store = shared;
  const file = await exportTo(store, raised);
  await store.good(["token", "revoke", "--user", "dora"]);
  await store.good(["access", "apply", file, "--dry-run"]);
  await store.good(["access", "grant", "alice", "other", "ReadOnly"]);
  const now = await store.good(["access", "export"]);
  for (const flags of [[], ["--dry-run"]]) {
    const refused = await store.run(["access", "apply", file, ...flags]);
    t.match(refused, {
      code: 1,
      stderr: /changed since the export: .* \(exported at version/,
    });
  }
  t.equal(await store.good(["access", "export"]), now);
});

t.test("of two edits of one version, one is applied", async (t) => {
  const store = shared;
  const file = await exportTo(store, raised);
  const both = await Promise.all([1, 2].map(() => store.run(["access", "apply", file])));
  t.strictSame(both.map(({ code }) => code).sort(), [0, 1]);
  t.match(both.map(({ stderr }) => stderr).join(""), /changed since the export/);
});

t.test("an edit of anything but grants, boundaries and attributes is refused", async (t) => {
  const store = shared;
  const before = await store.good(["access", "export"]);
  const refusals: [edit: (text: string) => string, stderr: RegExp][] = [
    [(text) => text.replace(/^.*\n/, ""), /does not begin with a version.*access export/],
    [(text) => text.replace('[[users]]\nusername = "dora"\n', ""), /dora is missing.*user remove/],
    [(text) => `${text}\n[[users]]\nusername = "bob"\n`, /bob has no record.*user add/],
    ...["disabled = true", 'email = "a@b.example"', "tokens_valid_after = 5"].map(
      (line): [(text: string) => string, RegExp] => [
        (text) => text.replace('username = "alice"\n', `username = "alice"\n${line}\n`),
        /alice: only attributes/,
      ],
    ),
    [(text) => text.replace('"Owner"', '"ReadOnly"'), /last administrator/],
    [(text) => text.replace('"ReadOnly"', '"Reader"'), /edited\.toml:\d+: `role` must be/],
  ];
  for (const [edit, stderr] of refusals) {
    const file = await exportTo(store, edit);
    t.match(await store.run(["access", "apply", file]), { code: 1, stderr }, String(stderr));
  }
  t.equal(await store.good(["access", "export"]), before);
  const file = await exportTo(store, (text) => text.replace('"Owner"', '"ReadOnly"'));
  t.match(await store.good(["access", "apply", file, "--force"]), /admin loses/);
});

t.test("access edit exports, runs $EDITOR and applies", async (t) => {
  const store = await withUsers(t);
  const edit = (editor: string) => {
    const env = { EDITOR: editor, TMPDIR: store.home };
    return runWarm(store.home, ["access", "edit"], "", env);
  };
  t.match(await edit(""), { code: 2, stderr: /\$EDITOR is not set/ });
  t.match(await edit("true"), { code: 0, stdout: "Nothing was changed.\n" });
  t.match(await edit('sed -i "s/ReadOnly/ReadWrite/"'), {
    code: 0,
    stdout: /alice gains INSERT, UPDATE, DELETE on main/,
  });
  const broken = await edit('sed -i "s/ReadWrite/Reader/"');
  t.match(broken, { code: 1, stderr: /`role` must be/ });
  const kept = /your edits are in (\S+)/.exec(broken.stderr)?.[1] ?? "";
  t.match(readFileSync(kept, "utf8"), /Reader/);
  const failed = await edit("false");
  t.match(failed, { code: 1, stderr: /the editor exited with/ });
  t.ok(existsSync(/are in (\S+)/.exec(failed.stderr)?.[1] ?? ""));
});

t.test("access history lists the versions, and rollback restores an earlier one", async (t) => {
  const store = await withUsers(t);
  const replica = await store.replica();
  const admin = await replica.login("admin", ADMIN_PASSWORD);
  const alice = await replica.login("alice", "alice password");
  const eve = '\n[[users]]\nusername = "staff:eve"\n';
  const grant = '\n[[acl]]\nusername = "staff:eve"\ndatabase = "main"\nrole = "ReadOnly"\n';
  const team = '\n[[groups]]\nname = "team"\nmembers = ["alice", "staff:eve"]\n';
  await store.good(["access", "apply", await exportTo(store, (text) => text + eve + team + grant)]);
  await store.good(["user", "set", "dora", "--same-as", "alice"]);
  const old = await store.good(["access", "export"]);
  const [, version = ""] = /^# access version (\d+)/.exec(old) ?? [];
  const role = { role: "ReadWrite" };
  t.equal((await replica.send("PUT", "/api/access/alice/main", role, admin)).status, 200);
  await store.addUser("carl", "ReadOnly");
  await store.good(["user", "enable", "dora"]);

  const listed = JSON.parse(await store.good(["access", "history", "--json"]));
  const byApi = listed.find(({ author }: { author: { kind: string } }) => author.kind === "api");
  t.match(byApi, {
    version: Number(version) + 1,
    at: /^\d{4}-.*Z$/,
    author: { kind: "api", name: "admin" },
    changes: [{ change: "grant raised", user: "alice", entry: "main", role: "ReadWrite" }],
  });
  const last = JSON.parse(await store.good(["access", "history", "--last", "2", "--json"]));
  t.strictSame(last, listed.slice(-2), "in order");
  // Entries of a release that did not record the previous state.
  const clearBefore = "update gatehouse.log set before = null where version";
  await store.sql(`${clearBefore} = ${version}`);
  t.strictSame(JSON.parse(await store.good(["access", "history", "--json"])), listed);
  await store.sql(`delete from gatehouse.log where version = 1`);
  const back3 = ["access", "history", "--last", "3", "--json"];
  t.strictSame(JSON.parse(await store.good(back3)), listed.slice(-3), "no more of the log is read");
  const table = await store.good(["access", "history"]);
  t.match(table, /api admin +grant raised alice main ReadWrite/);
  t.match(table, /cli \S+ +user changed dora/);
  t.notMatch(table, /argon2/);

  const before = await accounts(store);
  t.match(await store.good(["access", "rollback", version, "--dry-run"]), /carl loses SELECT/);
  t.equal((await replica.query(insert, alice)).status, 200);
  const back = await store.good(["access", "rollback", version]);
  t.match(back, /alice loses INSERT, UPDATE, DELETE on main.*Now version/s);
  t.equal((await replica.query(insert, alice)).status, 403);
  t.equal(await queryStatus(replica, alice), 200);
  t.strictSame(await accounts(store), before, "dora stays enabled, carl stays");
  const grants = (text: string) => text.slice(text.indexOf("[[acl]]"));
  t.equal(grants(await store.good(["access", "export"])), grants(old));

  await store.good(["user", "remove", "alice"]);
  await store.good(["user", "remove", "staff:eve"]);
  const rolled = await store.good(["access", "rollback", version]);
  t.match(rolled, /removed since: alice, staff:eve/);
  t.notMatch(await store.good(["access", "export"]), /alice|staff:eve/, "nor their groups");
  await store.addUser("alice", "ReadOnly");
  t.match(await store.good(["access", "rollback", version]), /removed since: alice, staff:eve/);
  const [record, ...others] = (await store.good(["access", "export"])).match(/.*alice.*/g) ?? [];
  t.strictSame([record, others], ['username = "alice"', []], "another alice gets nothing back");
  t.match(await store.run(["access", "rollback", "999"]), {
    code: 1,
    stderr: /version 999 does not exist/,
  });
  t.match(await store.run(["access", "rollback", "0"]), { code: 1, stderr: /last administrator/ });
  t.match(await store.run(["access", "rollback", "now"]), { code: 2, stderr: /allowed: a number/ });
});

t.test("without users and grants in the store, each command names the access file", async (t) => {
  const home = temporaryHome(t);
  const store = await makeStore(t, { access: "file" }, await sharedServer());
  for (const rest of ["export", "apply f", "edit", "history", "rollback 1"]) {
    for (const where of [home, store.home]) {
      const refused = await runWarm(where, ["access", ...rest.split(" ")]);
      t.match(refused, { code: 1, stderr: /access_control\.toml, not in a store; edit that file/ });
    }
  }
});
