/** For each rule of the access file, files that break it, with the line and the reason. */
import { entries, others } from "./broken-entries.ts";
import {
  afterReason,
  type BrokenFile,
  broken,
  databaseReason,
  emailReason,
  entry,
  hashReason,
  name,
  nameReason,
  record,
  roleReason,
  SECRET,
} from "./broken-file.ts";
import { grant, hashWith, SALT, user } from "./kit.ts";

function hashes(...written: string[]): BrokenFile[] {
  return written.map((hash) => {
    const shown = hash.length > 60 ? `${hash.slice(0, 60)}...` : hash;
    return broken(`a hash ${shown}`, `${record}password_hash = "${hash}"\n`, 3, hashReason);
  });
}

const shapes = [
  broken("an empty file", "", undefined, /holds no user and no grant/),
  broken("blank lines alone", " \n\r\n\t\n", undefined, /holds no user and no grant/),
  broken("comments alone", `# ${SECRET}\n# [[users]]\n`, undefined, /holds no user and no grant/),
  broken("empty arrays", "users = []\nacl = []\n", undefined, /holds no user and no grant/),
  broken("a half-written table", `${record}password_ha`, 3, /./),
  broken("an unclosed string", `[[users]]\nusername = "${SECRET}\n`, 2, /./),
  broken("a half header", `${record}\n[[ac`, 4, /./),
  broken("a key twice", `${record}${name}\n`, 3, /./),
  broken(
    "an unknown table",
    `${record}\n[${SECRET}]\na = 1\n`,
    4,
    /^only \[\[users]], \[\[acl]] and \[\[boundaries]]/,
  ),
  broken("an unknown array", `[[${SECRET}]]\na = 1\n${record}`, 1, /^only \[\[users]]/),
  broken("an unknown key at the top", `a.${SECRET} = 1\n${record}`, 1, /^only \[\[users]]/),
  broken(
    "one user table",
    `# one\n[users]\n${name}\n`,
    2,
    /^`users` must be written as \[\[users]]$/,
  ),
  broken("one acl table", `${record}[acl]\n${name}\n`, 3, /^`acl` must be written as \[\[acl]]$/),
  broken("users as a string", `\nusers = "${SECRET}"\n`, 2, /^`users` must be written as/),
  broken("an array of strings", `users = ["${SECRET}"]\n`, 1, /^not a table$/),
  broken("an array of dates", "acl = [1979-05-27]\n", 1, /^not a table$/),
  broken("an unknown key", `${record}${SECRET} = 1\n`, 3, /^unknown key; allowed: username, email/),
  broken("a key in another case", `${record}Email = "x"\n`, 3, /^unknown key/),
  broken(
    "an unknown key of a grant",
    `${entry}user = 1\n`,
    3,
    /^unknown key; allowed: username, database, role, tables, columns, /,
  ),
  broken("a table inside a record", `${record}\n[users.${SECRET}]\na = 1\n`, 4, /^unknown key/),
  broken("a prototype as a key", `${record}__proto__ = { disabled = true }\n`, 3, /^unknown key/),
  broken("an integer past 2^53", `${record}tokens_valid_after = 9007199254740993\n`, 3, /./),
];

const users = [
  broken("no username", `[[users]]\nemail = "${SECRET}"\n`, 1, nameReason),
  broken("a number for a username", "[[users]]\nusername = 1\n", 2, nameReason),
  ...[
    "",
    ".",
    "..",
    "a b",
    `${SECRET}!`,
    "a/b",
    "é",
    "a".repeat(65),
    "a\\u0000",
    "a\\n",
    ":a",
    "p:",
  ]
    .concat("p:..", "p:q:r", "p.q:a", `${"p".repeat(64)}:a`)
    .map((odd) => broken(`the username ${odd}`, `[[users]]\nusername = "${odd}"\n`, 2, nameReason)),
  broken("a number for an email", `${record}email = 1\n`, 3, emailReason),
  broken("an empty email", `${record}email = ""\n`, 3, emailReason),
  broken("an email past 254", `${record}email = "${"a".repeat(255)}"\n`, 3, emailReason),
  broken("an email of two lines", `${record}email = """${SECRET}\nb"""\n`, 3, emailReason),
  broken("an email with dotted keys", `${record}email.of = "x"\n`, 3, emailReason),
  broken(
    "a word for disabled",
    `${record}disabled = "yes"\n`,
    3,
    /^`disabled` must be true or false$/,
  ),
  broken("a number for disabled", `${record}disabled = 1\n`, 3, /^`disabled` must be true/),
  ...["-1", "1.5", "inf", "nan", '"1763700000"', "1979-05-27T07:32:00Z", "true"].map((odd) =>
    broken(`a limit of ${odd}`, `${record}tokens_valid_after = ${odd}\n`, 3, afterReason),
  ),
  broken(
    "a user twice",
    `${user("a")}${user("b")}[[users]]\nusername = 'a'\n`,
    10,
    /^this user has a record already$/,
  ),
];

const passwords = [
  broken("a number for a hash", `${record}password_hash = 1\n`, 3, hashReason),
  ...hashes(
    ...["", SECRET, "$2b$12$abcdefghijklmnopqrstuv", `$argon2i$v=19$m=64,t=1,p=1$${SALT}$${SALT}`],
    ...[`$argon2d$v=19$m=64,t=1,p=1$${SALT}$${SALT}`, `$argon2id$m=64,t=1,p=1$${SALT}$${SALT}`],
    ...[`$argon2id$v=16$m=64,t=1,p=1$${SALT}$${SALT}`, `$argon2id$v=19$m=64,t=1,p=1$${SALT}`],
    ...[`$argon2id$v=19$m=64,t=1,p=1$c2FsdA$${SALT}`, `$argon2id$v=19$m=64,t=1,p=1$${SALT}$c2FsdA`],
    ...[`${hashWith()} `, ` ${hashWith()}`, `${hashWith()}\\n`, `${hashWith()}${"A".repeat(512)}`],
    ...["m=64,t=1", "m=64,t=1,p=1,p=1", "m=64,m=64,p=1", "m=64,t=1,x=1", "t=1,p=1"].map(hashWith),
    ...["m=7,t=1,p=1", "m=1048577,t=1,p=1", "m=64,t=0,p=1", "m=64,t=65,p=1"].map(hashWith),
    ...["m=1024,t=1,p=0", "m=1024,t=1,p=65", "m=8,t=1,p=2", "m=-64,t=1,p=1"].map(hashWith),
    ...["m=64.5,t=1,p=1", "m=1e3,t=1,p=1", "m=99999999,t=1,p=1", "m= 64,t=1,p=1"].map(hashWith),
  ),
];

/** An entry of ReadWrite with this as its fifth line. */
const grants = [
  broken("a grant without a username", '[[acl]]\ndatabase = "a"\nrole = "Owner"\n', 1, nameReason),
  broken("a grant to *", grant("*", "main", "Owner"), 2, nameReason),
  broken("a grant without a database", `${entry}role = "Owner"\n`, 1, databaseReason),
  ...["", "**", "a b", "a.b", "a/b", `${SECRET}%`, "é", "a".repeat(64), "main\\u0000"].map((odd) =>
    broken(`the database ${odd}`, grant(SECRET, odd, "Owner"), 3, databaseReason),
  ),
  broken(
    "a list for a database",
    `${entry}database = ["main"]\nrole = "Owner"\n`,
    3,
    databaseReason,
  ),
  broken(
    "a grant without a role",
    `${entry}database = "main"\n`,
    1,
    /^`role` must be one of .*; it is left out$/,
  ),
  ...["", SECRET, "owner", "OWNER", " Owner", "ReadWrite ", "Admin"].map((odd) =>
    broken(`the role ${odd}`, grant(SECRET, "main", odd), 4, roleReason),
  ),
  broken("a list for a role", `${entry}database = "main"\nrole = ["Owner"]\n`, 4, roleReason),
  broken(
    "an entry twice",
    `${grant(SECRET, "main", "Owner")}${grant(SECRET, "main", "ReadOnly")}`,
    6,
    /^this user has an entry for this database already$/,
  ),
  broken(
    "an entry for * twice",
    `${grant(SECRET, "*", "ReadOnly")}${grant(SECRET, "*", "ReadOnly")}`,
    6,
    /^this user has an entry for this database already$/,
  ),
  broken(
    "a role with a slip",
    grant(SECRET, "main", "ReadWritee"),
    4,
    /None \(did you mean ReadWrite\?\)$/,
  ),
  broken("a role in another case", grant(SECRET, "main", "owner"), 4, / \(did you mean Owner\?\)$/),
  broken(
    "a key with a slip",
    `${entry}databse = "main"\n`,
    3,
    /expires \(did you mean database\?\)$/,
  ),
  broken("a table with a slip", `${record}\n[[user]]\n${name}\n`, 4, / \(did you mean users\?\)$/),
  broken(
    "two databases that differ by case",
    `${grant("a", SECRET, "Owner")}${grant("b", SECRET.toUpperCase(), "Owner")}`,
    8,
    /^another entry names a database that differs from this one only by case$/,
  ),
];

/** Every broken file, in the order of the format's own description. */
export const brokenFiles: readonly BrokenFile[] = [
  ...shapes,
  ...users,
  ...passwords,
  ...grants,
  ...entries,
  ...others,
];
