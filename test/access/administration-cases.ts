/** Who may give which roles, as cases: the grants in force, who acts for whom where, and the outcome. */
/** A rule by example. */
export interface Case {
  rule: string;
  given: string[];
  act: string;
  /** Owner, DbAdmin, ReadWrite, ReadOnly. */
  expected: string;
}

const own = ["root * Owner", "olga main Owner", "dora main DbAdmin", "wim main ReadWrite"];
export const staff = [...own, "rita main ReadOnly"];

export const cases: Case[] = [
  { rule: "an administrator gives any role", given: staff, act: "root new main", expected: "++++" },
  {
    rule: "an administrator gives any role on *",
    given: staff,
    act: "root new *",
    expected: "++++",
  },
  {
    rule: "an administrator gives any role on a new database",
    given: staff,
    act: "root new fresh",
    expected: "++++",
  },
  {
    rule: "an Owner gives any role on its database",
    given: staff,
    act: "olga new main",
    expected: "++++",
  },
  { rule: "an Owner gives none on another", given: staff, act: "olga new other", expected: "----" },
  { rule: "an Owner gives none on *", given: staff, act: "olga new *", expected: "----" },
  {
    rule: "a DbAdmin gives the roles below its own",
    given: staff,
    act: "dora new main",
    expected: "--++",
  },
  {
    rule: "a DbAdmin gives none on another",
    given: staff,
    act: "dora new other",
    expected: "----",
  },
  { rule: "a DbAdmin gives none on *", given: staff, act: "dora new *", expected: "----" },
  { rule: "a ReadWrite gives none", given: staff, act: "wim new main", expected: "----" },
  { rule: "a ReadOnly gives none", given: staff, act: "rita new main", expected: "----" },
  { rule: "who has no grant gives none", given: staff, act: "nobody new main", expected: "----" },

  {
    rule: "an administrator lowers an Owner",
    given: staff,
    act: "root olga main",
    expected: "++++",
  },
  {
    rule: "an Owner changes no other Owner",
    given: [...staff, "otto main Owner"],
    act: "olga otto main",
    expected: "----",
  },
  {
    rule: "an Owner changes no administrator",
    given: staff,
    act: "olga root main",
    expected: "----",
  },
  { rule: "an Owner changes a DbAdmin", given: staff, act: "olga dora main", expected: "++++" },
  { rule: "a DbAdmin changes no Owner", given: staff, act: "dora olga main", expected: "----" },
  {
    rule: "a DbAdmin changes no other DbAdmin",
    given: [...staff, "dirk main DbAdmin"],
    act: "dora dirk main",
    expected: "----",
  },
  {
    rule: "a DbAdmin changes those below it",
    given: staff,
    act: "dora wim main",
    expected: "--++",
  },
  {
    rule: "a DbAdmin narrows no DbAdmin of *",
    given: [...staff, "dirk * DbAdmin"],
    act: "dora dirk main",
    expected: "----",
  },
  {
    rule: "a DbAdmin narrows a ReadWrite of *",
    given: [...staff, "wide * ReadWrite"],
    act: "dora wide main",
    expected: "--++",
  },

  {
    rule: "an Owner gives up some of its own",
    given: staff,
    act: "olga olga main",
    expected: "++++",
  },
  {
    rule: "a DbAdmin gives up its own, and does not raise itself",
    given: staff,
    act: "dora dora main",
    expected: "--++",
  },
  { rule: "a ReadWrite gives up writing", given: staff, act: "wim wim main", expected: "---+" },
  {
    rule: "a ReadOnly changes nothing of its own",
    given: staff,
    act: "rita rita main",
    expected: "----",
  },

  {
    rule: "a DbAdmin of * gives the roles below it everywhere",
    given: ["dirk * DbAdmin", "wim any ReadOnly"],
    act: "dirk new any",
    expected: "--++",
  },
  {
    rule: "but brings no new name into the file",
    given: ["dirk * DbAdmin", "wim any ReadOnly"],
    act: "dirk new other",
    expected: "----",
  },
  {
    rule: "not for itself either",
    given: ["dirk * DbAdmin", "wim any ReadOnly"],
    act: "dirk dirk other",
    expected: "----",
  },
  {
    rule: "a DbAdmin of * gives them on * too",
    given: ["dirk * DbAdmin"],
    act: "dirk new *",
    expected: "--++",
  },
  {
    rule: "a narrowed DbAdmin of * gives none where it is narrowed",
    given: ["dirk * DbAdmin", "dirk main ReadOnly"],
    act: "dirk new main",
    expected: "----",
  },
  {
    rule: "nor on *, which reaches there",
    given: ["dirk * DbAdmin", "dirk main ReadOnly"],
    act: "dirk new *",
    expected: "----",
  },
  {
    rule: "but elsewhere",
    given: ["dirk * DbAdmin", "dirk main ReadOnly", "wim other ReadOnly"],
    act: "dirk new other",
    expected: "--++",
  },
  {
    rule: "nor does it undo its narrowing",
    given: ["dirk * DbAdmin", "dirk main ReadOnly"],
    act: "dirk dirk main",
    expected: "----",
  },
  {
    rule: "an Owner of one database does not widen * by it",
    given: ["dirk * DbAdmin", "dirk main Owner"],
    act: "dirk new *",
    expected: "--++",
  },
  {
    rule: "a narrowed administrator is one all the same on *",
    given: ["root * Owner", "root main ReadOnly"],
    act: "root new *",
    expected: "++++",
  },
];
