import t from "tap";
import { requireRemainingOwners } from "../../src/access/administration.ts";
import { parseAccessFile } from "../../src/access/parse.ts";
import { runAtOnce } from "../../src/cooperative-scheduling.ts";
import { grant, hashWith, refusalOf, user } from "./kit.ts";

const disabled = `password_hash = "${hashWith()}"\ndisabled = true`;
const others = user("other") + grant("other", "main", "ReadOnly");

/** The refusal of a change from one file to another. */
function succession(before: string, after: string): string | undefined {
  const snapshot = (text: string) => parseAccessFile(text + others, "access.toml");
  return refusalOf(() => runAtOnce(requireRemainingOwners(snapshot(before), snapshot(after))));
}

const root = user("root") + grant("root", "*", "Owner");
const second = user("second") + grant("second", "*", "Owner");
const olga = user("olga") + grant("olga", "sales", "Owner");

t.test("the last administrator stays", (t) => {
  t.equal(succession(root, ""), "last_administrator", "not removed");
  t.equal(succession(root, user("root")), "last_administrator", "grant not revoked");
  t.equal(succession(root, user("root") + grant("root", "*", "DbAdmin")), "last_administrator");
  const off = user("root", disabled) + grant("root", "*", "Owner");
  t.equal(succession(root, off), "last_administrator", "not disabled");
  const mute = user("root", "") + grant("root", "*", "Owner");
  t.equal(succession(root, mute), "last_administrator", "password not taken away");
  t.end();
});

t.test("one of two administrators may go", (t) => {
  t.equal(succession(root + second, second), undefined);
  t.equal(succession(root + second, user("second") + root), undefined);
  t.end();
});

t.test("who cannot log in as an administrator does not count as one", (t) => {
  const idle = [
    user("idle", disabled) + grant("idle", "*", "Owner"),
    user("idle", "") + grant("idle", "*", "Owner"),
    grant("idle", "*", "Owner"),
    grant("github:idle", "*", "Owner"),
    user("idle") + grant("idle", "*", "DbAdmin"),
    user("idle") + grant("idle", "main", "Owner"),
  ];
  for (const left of idle) t.equal(succession(root + left, left), "last_administrator", left);
  t.end();
});

t.test("where there was no administrator, none is asked for", (t) => {
  const idle = user("idle", "") + grant("idle", "*", "Owner");
  t.equal(succession(idle, ""), undefined);
  t.end();
});

t.test("the last Owner of a database stays, whatever the entries for * are", (t) => {
  t.equal(succession(root + olga, root), "last_owner");
  t.equal(succession(root + olga, root + user("olga")), "last_owner");
  t.equal(
    succession(root + olga, root + user("olga") + grant("olga", "sales", "DbAdmin")),
    "last_owner",
  );
  t.equal(
    succession(root + olga, root + user("olga", disabled) + grant("olga", "sales", "Owner")),
    "last_owner",
  );
  t.end();
});

t.test("one of two Owners may go, and an Owner on another database does not replace it", (t) => {
  const otto = user("otto") + grant("otto", "sales", "Owner");
  t.equal(succession(root + olga + otto, root + otto), undefined);
  const elsewhere = user("otto") + grant("otto", "other-sales", "Owner");
  t.equal(succession(root + olga + elsewhere, root + elsewhere), "last_owner");
  t.end();
});

t.test("an Owner needs no password, but must not be disabled or a stranger", (t) => {
  const remaining: [string, string | undefined][] = [
    [user("otto", "") + grant("otto", "sales", "Owner"), undefined],
    [grant("github:otto", "sales", "Owner"), undefined],
    [user("otto", disabled) + grant("otto", "sales", "Owner"), "last_owner"],
    [grant("otto", "sales", "Owner"), "last_owner"],
  ];
  for (const [otto, refusal] of remaining) {
    t.equal(succession(root + olga + otto, root + otto), refusal, otto);
  }
  t.end();
});

t.test("changes that take nobody away are nobody's loss", (t) => {
  t.equal(succession(root + olga, root + olga + second), undefined);
  t.equal(succession(root, root + olga), undefined);
  const renewed = user("root", `password_hash = "${hashWith("m=128,t=1,p=1")}"`);
  t.equal(succession(root, renewed + grant("root", "*", "Owner")), undefined);
  t.end();
});
