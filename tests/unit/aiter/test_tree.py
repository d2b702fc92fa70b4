"""Finding a tree, asking its version, and refusing what is not inside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from moe_preflight.aiter.foldertree import LEADS_OUT
from moe_preflight.aiter.tree import Tree, open_tree
from moe_preflight.errors import FileUnreadable, InputError, TreeUnavailable, UsageError
from tests.corpus import corpus, needs_corpus


def make(root: Path, *, meta: str = "", version_file: str | None = None) -> Path:
    """A minimal tree: one table, one kernel list, one source."""
    for name, text in {
        "aiter/__init__.py": "",
        "aiter/fused_moe.py": "x = 1\n",
        "aiter/configs/tuned_fmoe.csv": "a,b\n1,2\n",
        "aiter/configs/model_configs/z_tuned_fmoe.csv": "a,b\n",
        "aiter/configs/model_configs/a_tuned_fmoe.csv": "a,b\n",
        f"{meta}hsa/gfx942/fmoe/fmoe.csv": "k\n",
        f"{meta}csrc/ck_gemm_moe_2stages_codegen/gen_instances.py": "",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if version_file is not None:
        (root / "aiter/_version.py").write_text(version_file)
    return root


def dist_info(place: Path, name: str, version: str) -> Path:
    info = place / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n")
    return info


def says(tree: Tree) -> tuple[str, str]:
    return str(tree.version), tree.version_source


class TestFolder:
    def test_lists_sorted_and_reads(self, tmp_path: Path) -> None:
        tree = open_tree(str(make(tmp_path)))
        assert (tree.kind, tree.found_by, tree.version) == ("folder", "folder", None)
        assert tree.names("aiter/configs", ".csv") == [
            "aiter/configs/model_configs/a_tuned_fmoe.csv",
            "aiter/configs/model_configs/z_tuned_fmoe.csv",
            "aiter/configs/tuned_fmoe.csv",
        ]
        assert tree.read_bytes("aiter/configs/tuned_fmoe.csv") == b"a,b\n1,2\n"
        assert tree.has_python
        assert tree.has_sources
        assert tree.names("nowhere") == []
        assert tree.locate("aiter") == str(tmp_path / "aiter")

    def test_the_aiter_folder_itself(self, tmp_path: Path) -> None:
        make(tmp_path)
        assert open_tree(str(tmp_path / "aiter")).root == str(tmp_path)

    def test_a_folder_name_is_no_evidence(self, tmp_path: Path) -> None:
        assert open_tree(str(make(tmp_path / "v0.1.20"))).version is None

    def test_site_packages_knows_its_metadata(self, tmp_path: Path) -> None:
        dist_info(make(tmp_path), "amd_aiter", "0.1.9")
        assert says(open_tree(str(tmp_path))) == ("0.1.9", "distribution metadata")

    @pytest.mark.parametrize("mode", ["install", "develop", None])
    def test_sources_are_where_install_mode_says(self, tmp_path: Path, mode: str | None) -> None:
        make(make(tmp_path), meta="aiter_meta/")
        if mode:
            (tmp_path / "aiter/install_mode").write_text(mode)
        tree = open_tree(str(tmp_path))
        assert tree.hsa_prefix == ("aiter_meta/hsa" if mode == "install" else "hsa")
        assert tree.csrc_prefix == ("aiter_meta/csrc" if mode == "install" else "csrc")

    def test_sources_in_the_other_place_are_found(self, tmp_path: Path) -> None:
        assert open_tree(str(make(tmp_path, meta="aiter_meta/"))).csrc_prefix == "aiter_meta/csrc"

    @pytest.mark.parametrize("what", ["missing", "file.txt", "empty"])
    def test_refusals_are_one_line(self, tmp_path: Path, what: str) -> None:
        (tmp_path / "file.txt").write_text("")
        (tmp_path / "empty").mkdir()
        with pytest.raises(TreeUnavailable) as e:
            open_tree(str(tmp_path / what))
        assert "\n" not in str(e.value)
        assert "aiter/configs" in str(e.value)

    def test_the_unrelated_package_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "aiter").mkdir()
        (tmp_path / "aiter/__init__.py").write_text("")
        with pytest.raises(TreeUnavailable, match="unrelated package"):
            open_tree(str(tmp_path))


class TestVersion:
    def test_explicit_wins(self, tmp_path: Path) -> None:
        make(tmp_path, version_file="__version__ = '0.1.8'\n")
        assert says(open_tree(str(tmp_path), version="v0.1.20.post1")) == ("0.1.20.post1", "given on the command line")

    def test_explicit_nonsense_is_usage(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="not a version"):
            open_tree(str(make(tmp_path)), version="latest")

    @pytest.mark.parametrize(
        "text",
        [
            "__version__ = '0.1.8'",
            'version: str = "0.1.8"',
            "__version__ = version = '0.1.8'",
            "__version__: str\n__version__ = '0.1.8'",
        ],
    )
    def test_version_file(self, tmp_path: Path, text: str) -> None:
        assert says(open_tree(str(make(tmp_path, version_file=text + "\n")))) == ("0.1.8", "aiter/_version.py")

    def test_metadata_beats_version_file(self, tmp_path: Path) -> None:
        dist_info(make(tmp_path, version_file="__version__ = '0.1.8'\n"), "amd_aiter", "0.1.9.post1+rocm7.0")
        assert says(open_tree("auto", search=[str(tmp_path)])) == ("0.1.9.post1+rocm7.0", "distribution metadata")

    def test_git_describe_comes_last(self, tmp_path: Path) -> None:
        make(tmp_path)
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-C", str(tmp_path)]
        for args in (
            ["init", "-q"],
            ["add", "aiter"],
            ["commit", "-qm", "x"],
            ["tag", "v0.1.16.post4"],
            ["commit", "-qm", "y", "--allow-empty"],
        ):
            subprocess.run([*git, *args], check=True)
        tree = open_tree(str(tmp_path))
        assert (tree.kind, tree.found_by, tree.version_source) == ("checkout", "git checkout", "git describe")
        assert tree.version is not None
        assert (tree.version.release, tree.version.post) == ((0, 1, 16), 4)
        (tmp_path / "aiter/_version.py").write_text("__version__ = '0.1.17'\n")
        assert says(open_tree(str(tmp_path))) == ("0.1.17", "aiter/_version.py")

    def test_a_broken_checkout_has_no_version(self, tmp_path: Path) -> None:
        make(tmp_path)
        (tmp_path / ".git").write_text("gitdir: nowhere\n")
        assert open_tree(str(tmp_path)).version is None


class TestInstalled:
    def test_distribution(self, tmp_path: Path) -> None:
        dist_info(make(tmp_path, meta="aiter_meta/"), "amd_aiter", "0.1.7.post2.dev18")
        tree = open_tree(search=["/nowhere", str(tmp_path)])
        assert (tree.kind, tree.found_by) == ("installed", "installed distribution amd-aiter")
        assert says(tree) == ("0.1.7.post2.dev18", "distribution metadata")
        assert tree.csrc_prefix == "aiter_meta/csrc"

    def test_editable_install(self, tmp_path: Path) -> None:
        source = make(tmp_path / "a checkout")
        info = dist_info(tmp_path / "site", "amd_aiter", "0.1.12")
        (info / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
        tree = open_tree(search=[str(tmp_path / "site")])
        assert (tree.root, tree.found_by) == (str(source), "editable install of amd-aiter")
        assert says(tree)[0] == "0.1.12"

    def test_egg_link(self, tmp_path: Path) -> None:
        source = make(tmp_path / "src", version_file="__version__ = '0.1.12'\n")
        (tmp_path / "site").mkdir()
        (tmp_path / "site/amd-aiter.egg-link").write_text(f"{source}\n.\n")
        assert open_tree(search=[str(tmp_path / "site")]).root == str(source)

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"url": 3}', '{"url": "https://example.invalid/x"}', "[" * 5000])
    def test_metadata_without_files_is_passed_over(self, tmp_path: Path, text: str) -> None:
        info = dist_info(tmp_path / "site", "amd_aiter", "0.1.12")
        (info / "direct_url.json").write_text(text)
        with pytest.raises(TreeUnavailable, match="not installed"):
            open_tree(search=[str(tmp_path / "site")])

    def test_module_folder_without_metadata(self, tmp_path: Path) -> None:
        assert open_tree(search=[str(make(tmp_path))]).found_by == "module folder aiter on the Python path"

    def test_nothing_installed(self, tmp_path: Path) -> None:
        with pytest.raises(TreeUnavailable, match="pip install --pre amd-aiter"):
            open_tree(search=[str(tmp_path)])

    def test_the_unrelated_package_is_refused_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "aiter").mkdir()
        dist_info(tmp_path, "aiter", "0.13.20191203")
        with pytest.raises(TreeUnavailable, match=r"aiter 0\.13\.20191203.*unrelated.*pip install --pre amd-aiter"):
            open_tree(search=[str(tmp_path)])

    def test_amds_own_wins_over_the_unrelated_one(self, tmp_path: Path) -> None:
        dist_info(tmp_path / "one", "aiter", "0.13")
        dist_info(make(tmp_path / "two"), "amd_aiter", "0.1.9")
        assert str(open_tree(search=[str(tmp_path / "one"), str(tmp_path / "two")]).version) == "0.1.9"

    def test_aiter_is_never_imported(self, tmp_path: Path) -> None:
        make(tmp_path)
        (tmp_path / "aiter/__init__.py").write_text("raise SystemExit('imported')")
        code = "import sys\nfrom moe_preflight.aiter import tree\ntree.open_tree(search=sys.argv[1:])\n"
        code += "assert 'aiter' not in sys.modules"
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


class TestInsideOnly:
    @pytest.mark.parametrize(
        "name", ["../secret", "/etc/passwd", "aiter/../../secret", "", "aiter/\0", "aiter", "aiter/none.csv"]
    )
    def test_names_that_are_not_files_inside(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "secret").write_text("s")
        tree = open_tree(str(make(tmp_path / "t")))
        with pytest.raises(FileUnreadable):
            tree.read_bytes(name)

    def test_a_file_link_out_is_read_when_the_name_is_kept(self, tmp_path: Path) -> None:
        """uv's symlink mode, cp -rs and runfiles link file by file; ``x.csv -> secret`` is another matter."""
        make(tmp_path / "t")
        (tmp_path / "store").mkdir()
        (tmp_path / "store/x.csv").write_text("s")
        (tmp_path / "t/aiter/configs/x.csv").symlink_to(tmp_path / "store/x.csv")
        (tmp_path / "t/aiter/configs/y.csv").symlink_to(tmp_path / "store/x.csv")
        tree = open_tree(str(tmp_path / "t"))
        assert "aiter/configs/x.csv" in tree.names("aiter/configs", ".csv")
        assert tree.exists("aiter/configs/x.csv")
        assert tree.read_bytes("aiter/configs/x.csv") == b"s"
        with pytest.raises(FileUnreadable, match="of another name outside"):
            tree.read_bytes("aiter/configs/y.csv")

    @pytest.mark.parametrize("target", ["/dev/zero", "loop.csv", "nowhere", "pipe.csv"])
    def test_links_to_no_file_are_refused(self, tmp_path: Path, target: str) -> None:
        make(tmp_path / "t")
        os.mkfifo(tmp_path / "pipe.csv")
        link = tmp_path / "t/aiter/configs" / ("pipe.csv" if target == "pipe.csv" else "loop.csv")
        link.symlink_to(tmp_path / target if target == "pipe.csv" else target)
        with pytest.raises(FileUnreadable):
            open_tree(str(tmp_path / "t")).read_bytes(f"aiter/configs/{link.name}")

    def test_a_listing_that_leads_out_says_so(self, tmp_path: Path) -> None:
        make(tmp_path / "t")
        (tmp_path / "out").mkdir()
        (tmp_path / "t/more").symlink_to(tmp_path / "out")
        tree = open_tree(str(tmp_path / "t"))
        assert tree.names("more") == []
        assert tree.unreadable == [("more", LEADS_OUT)]

    def test_a_folder_link_out_is_reported(self, tmp_path: Path) -> None:
        make(tmp_path / "t")
        (tmp_path / "out").mkdir()
        (tmp_path / "out/a.csv").write_text("s")
        (tmp_path / "t/aiter/configs/more").symlink_to(tmp_path / "out")
        tree = open_tree(str(tmp_path / "t"))
        assert not [n for n in tree.names("aiter/configs") if "more" in n]
        assert tree.unreadable == [("aiter/configs/more", LEADS_OUT)]
        with pytest.raises(FileUnreadable, match="another name outside"):
            tree.read_bytes("aiter/configs/more/a.csv")

    def test_links_inside_are_followed_and_loops_end(self, tmp_path: Path) -> None:
        make(tmp_path)
        (tmp_path / "aiter/configs/loop").symlink_to(tmp_path / "aiter/configs")
        (tmp_path / "aiter/configs/y.csv").symlink_to("tuned_fmoe.csv")
        tree = open_tree(str(tmp_path))
        assert "aiter/configs/loop/tuned_fmoe.csv" in tree.names("aiter/configs")
        assert tree.read_bytes("aiter/configs/y.csv") == b"a,b\n1,2\n"

    @pytest.mark.parametrize("place", ["aiter", "aiter/configs", "aiter/configs/model_configs", "hsa"])
    @pytest.mark.parametrize("prefix", ["", "x1y2z3-"])
    def test_folders_an_installer_links_are_entered(self, tmp_path: Path, place: str, prefix: str) -> None:
        """Nix and Bazel link whole folders, under the name they have."""
        make(tmp_path / "t")
        (tmp_path / "t/aiter/configs/model_configs").mkdir(exist_ok=True)
        (tmp_path / "t/aiter/configs/model_configs/m_tuned_fmoe.csv").write_text("a,b\n")
        (tmp_path / "t/hsa").mkdir(exist_ok=True)
        (tmp_path / "t/hsa/list.csv").write_text("c\n")
        plain = open_tree(str(tmp_path / "t"))
        listed = {under: plain.names(under) for under in ("aiter/configs", "hsa")}
        (tmp_path / "store").mkdir()
        there = tmp_path / "store" / (prefix + place.rpartition("/")[2])
        (tmp_path / "t" / place).rename(there)
        (tmp_path / "t" / place).symlink_to(there)
        tree = open_tree(str(tmp_path / "t"))
        assert {under: tree.names(under) for under in listed} == listed
        assert tree.unreadable == []
        for name in (*listed["aiter/configs"], *listed["hsa"]):
            assert tree.exists(name)
            assert tree.read_bytes(name) == (there.parent.parent / "t" / name).read_bytes()

    def test_folders_of_another_name_are_refused(self, tmp_path: Path) -> None:
        make(tmp_path / "real")
        (tmp_path / "real/aiter/configs").rename(tmp_path / "real/aiter/other")
        (tmp_path / "t/aiter").mkdir(parents=True)
        (tmp_path / "t/aiter/configs").symlink_to(tmp_path / "real/aiter/other")
        with pytest.raises(TreeUnavailable, match="another name outside"):
            open_tree(str(tmp_path / "t"))

    def test_inside_a_linked_folder_the_rule_goes_on(self, tmp_path: Path) -> None:
        make(tmp_path / "t")
        store = tmp_path / "store/more"
        store.mkdir(parents=True)
        (tmp_path / "secret.csv").write_text("s")
        (tmp_path / "home").mkdir()
        (tmp_path / "home/b.csv").write_text("s")
        (store / "a.csv").symlink_to(tmp_path / "secret.csv")
        (store / "away").symlink_to(tmp_path / "home")
        (store / "more").symlink_to(store)
        (tmp_path / "t/aiter/configs/more").symlink_to(store)
        tree = open_tree(str(tmp_path / "t"))
        listed = [n for n in tree.names("aiter/configs", ".csv") if "more" in n]
        assert listed == ["aiter/configs/more/a.csv"], "a loop ends, another name stays out"
        assert tree.unreadable == [("aiter/configs/more/away", LEADS_OUT)]
        for name in ("aiter/configs/more/a.csv", "aiter/configs/more/away/b.csv"):
            with pytest.raises(FileUnreadable, match="another name outside"):
                tree.read_bytes(name)

    def test_a_link_to_a_large_place_ends(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("moe_preflight.aiter.foldertree.MAX_NAMES", 50)
        make(tmp_path / "t")
        big = tmp_path / "usr"
        big.mkdir()
        for i in range(60):
            (big / f"{i}.txt").write_text("")
        (tmp_path / "t/aiter/configs/usr").symlink_to(big)
        tree = open_tree(str(tmp_path / "t"))
        assert tree.names("aiter/configs/usr", ".csv") == []
        assert tree.unreadable == [("aiter/configs/usr", "too many files or folders to list")]

    def test_pipes_are_refused_without_waiting(self, tmp_path: Path) -> None:
        make(tmp_path)
        os.mkfifo(tmp_path / "aiter/configs/pipe.csv")
        with pytest.raises(FileUnreadable, match="not a regular file"):
            open_tree(str(tmp_path)).read_bytes("aiter/configs/pipe.csv")

    def test_size_cap_names_both_sizes(self, tmp_path: Path) -> None:
        tree = open_tree(str(make(tmp_path)))
        with pytest.raises(FileUnreadable, match="8 bytes, more than the 7"):
            tree.read_bytes("aiter/configs/tuned_fmoe.csv", limit=7)

    def test_not_utf8_names_the_byte(self, tmp_path: Path) -> None:
        make(tmp_path)
        (tmp_path / "aiter/fused_moe.py").write_bytes(b"ab\xff")
        with pytest.raises(FileUnreadable, match="not UTF-8 at byte 2"):
            open_tree(str(tmp_path)).read_text("aiter/fused_moe.py")


class TestWheel:
    def pack(self, tmp_path: Path, name: str = "amd_aiter-0.1.9-cp312-cp312-linux_x86_64.whl", *, empty: bool = False) -> Path:
        source, wheel = make(tmp_path / "src", meta="aiter_meta/"), tmp_path / name
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("other/x.csv", "x")
            for f in [] if empty else sorted(source.rglob("*")):
                z.write(f, f.relative_to(source))
        return wheel

    def test_same_answers_as_the_folder(self, tmp_path: Path) -> None:
        tree = open_tree(str(self.pack(tmp_path)))
        folder = open_tree(str(tmp_path / "src"))
        assert (tree.kind, tree.found_by) == ("wheel", "wheel file")
        assert says(tree) == ("0.1.9", "wheel name")
        for under, suffix in (("aiter/configs", ".csv"), ("aiter_meta/hsa", ""), ("nowhere", ""), ("aiter", ".py")):
            assert tree.names(under, suffix) == folder.names(under, suffix)
        assert tree.read_bytes("aiter/configs/tuned_fmoe.csv") == folder.read_bytes("aiter/configs/tuned_fmoe.csv")
        assert (tree.has_python, tree.has_sources, tree.csrc_prefix) == (True, True, "aiter_meta/csrc")
        assert tree.exists("aiter/configs")
        assert not tree.exists("aiter/con")
        assert tree.locate("aiter/x").endswith(".whl!aiter/x")

    def test_cap_and_absence(self, tmp_path: Path) -> None:
        tree = open_tree(str(self.pack(tmp_path)))
        with pytest.raises(FileUnreadable, match="more than the 7 bytes"):
            tree.read_bytes("aiter/configs/tuned_fmoe.csv", limit=7)
        with pytest.raises(FileUnreadable, match="no such file"):
            tree.read_bytes("aiter/none")

    def test_damaged_member_is_unreadable_not_a_crash(self, tmp_path: Path) -> None:
        wheel = self.pack(tmp_path)
        data = bytearray(wheel.read_bytes())
        at = data.index(b"aiter/configs/tuned_fmoe.csv") + len(b"aiter/configs/tuned_fmoe.csv")
        data[at : at + 4] = b"\xff\xff\xff\xff"
        wheel.write_bytes(data)
        with pytest.raises(FileUnreadable, match="damaged"):
            open_tree(str(wheel)).read_bytes("aiter/configs/tuned_fmoe.csv")

    def test_not_a_zip_is_malformed_input(self, tmp_path: Path) -> None:
        bad = tmp_path / "amd_aiter-0.1.9-py3-none-any.whl"
        bad.write_text("no")
        with pytest.raises(InputError, match="not a zip archive"):
            open_tree(str(bad))

    def test_other_wheels_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TreeUnavailable, match="no aiter/configs"):
            open_tree(str(self.pack(tmp_path, empty=True)))
        with pytest.raises(TreeUnavailable, match="unrelated package"):
            open_tree(str(self.pack(tmp_path, "aiter-0.13.20191203-py3-none-any.whl")))


@needs_corpus
def test_a_real_release_has_all_its_files() -> None:
    tree = open_tree(str(corpus("aiter-trees", "v0.1.20.post1")))
    names = tree.names("aiter/configs", ".csv")
    assert len(names) == 151
    assert all(tree.read_bytes(n) for n in names)
