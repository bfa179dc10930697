//! Our structures beside those of the header that rdma-core installs.
use std::env;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{offset_of, size_of};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::layout::*;

/// Where `infiniband/verbs.h` is: `make test-verbs` fetches it, libibverbs-dev installs it.
fn header_folder() -> Option<PathBuf> {
    let folders = [
        env::var_os("FOREBAY_VERBS_INCLUDE"),
        Some("/usr/include".into()),
    ];
    let mut folders = folders.into_iter().flatten().map(PathBuf::from);
    folders.find(|folder| folder.join("infiniband/verbs.h").exists())
}

/// Lines of C that hold a number to what the header says.
struct Claims(String);

impl Claims {
    fn same(&mut self, theirs: &str, ours: usize) {
        writeln!(
            self.0,
            "_Static_assert(({theirs}) == {ours}, \"{theirs}\");"
        )
        .expect("a string grows");
    }

    fn offsets(&mut self, structure: &str, members: &[(&str, usize)]) {
        for (member, offset) in members {
            self.same(&format!("offsetof(struct {structure}, {member})"), *offset);
        }
    }
}

fn structures(claims: &mut Claims) {
    claims.offsets(
        "ibv_context",
        &[
            ("ops.alloc_mw", offset_of!(Context, alloc_mw)),
            ("ops.dealloc_mw", offset_of!(Context, dealloc_mw)),
            ("ops.poll_cq", offset_of!(Context, poll_cq)),
            ("ops.req_notify_cq", offset_of!(Context, req_notify_cq)),
            ("ops.post_send", offset_of!(Context, post_send)),
            ("ops.post_recv", offset_of!(Context, post_recv)),
        ],
    );
    claims.offsets(
        "ibv_mr",
        &[
            ("lkey", offset_of!(MemoryRegion, lkey)),
            ("rkey", offset_of!(MemoryRegion, rkey)),
        ],
    );
    claims.offsets("ibv_mw", &[("rkey", offset_of!(MemoryWindow, rkey))]);
    claims.offsets("ibv_comp_channel", &[("fd", offset_of!(Channel, fd))]);
    claims.offsets(
        "ibv_cq",
        &[("context", offset_of!(CompletionQueue, context))],
    );
    claims.offsets("ibv_qp", &[("qp_num", offset_of!(QueuePair, number))]);
    claims.offsets("ibv_pd", &[("context", 0)]);
    claims.offsets(
        "ibv_port_attr",
        &[
            ("state", offset_of!(PortAttributes, state)),
            ("active_mtu", offset_of!(PortAttributes, mtu)),
            ("lid", offset_of!(PortAttributes, lid)),
        ],
    );
    claims.offsets(
        "ibv_device_attr",
        &[(
            "device_cap_flags",
            offset_of!(DeviceAttributes, capabilities),
        )],
    );
    let fits =
        usize::from(size_of::<DeviceAttributes>() >= 232 && size_of::<PortAttributes>() >= 52);
    claims.same(
        "sizeof(struct ibv_device_attr) <= 232 && sizeof(struct ibv_port_attr) <= 52",
        fits,
    );
}

fn requests(claims: &mut Claims) {
    for (structure, bytes) in [
        ("ibv_wc", size_of::<WorkCompletion>()),
        ("ibv_sge", size_of::<Piece>()),
        ("ibv_send_wr", size_of::<SendRequest>()),
        ("ibv_recv_wr", size_of::<ReceiveRequest>()),
        ("ibv_qp_init_attr", size_of::<PairRequest>()),
        ("ibv_qp_attr", size_of::<PairAttributes>()),
        ("ibv_ah_attr", size_of::<Route>()),
    ] {
        claims.same(&format!("sizeof(struct {structure})"), bytes);
    }
    claims.offsets(
        "ibv_wc",
        &[
            ("status", offset_of!(WorkCompletion, status)),
            ("opcode", offset_of!(WorkCompletion, opcode)),
            ("byte_len", offset_of!(WorkCompletion, bytes)),
            ("imm_data", offset_of!(WorkCompletion, immediate)),
        ],
    );
    claims.offsets(
        "ibv_send_wr",
        &[
            ("sg_list", offset_of!(SendRequest, pieces)),
            ("num_sge", offset_of!(SendRequest, pieces_count)),
            ("opcode", offset_of!(SendRequest, opcode)),
            ("send_flags", offset_of!(SendRequest, flags)),
            ("imm_data", offset_of!(SendRequest, immediate)),
            ("invalidate_rkey", offset_of!(SendRequest, immediate)),
            (
                "wr.rdma.remote_addr",
                offset_of!(SendRequest, remote_address),
            ),
            ("wr.rdma.rkey", offset_of!(SendRequest, remote_key)),
            ("bind_mw.mw", offset_of!(SendRequest, window)),
            ("bind_mw.rkey", offset_of!(SendRequest, window_key)),
            ("bind_mw.bind_info.mr", offset_of!(SendRequest, bind_region)),
            (
                "bind_mw.bind_info.addr",
                offset_of!(SendRequest, bind_address),
            ),
            (
                "bind_mw.bind_info.length",
                offset_of!(SendRequest, bind_bytes),
            ),
            (
                "bind_mw.bind_info.mw_access_flags",
                offset_of!(SendRequest, bind_access),
            ),
        ],
    );
    claims.offsets(
        "ibv_recv_wr",
        &[("num_sge", offset_of!(ReceiveRequest, pieces_count))],
    );
}

fn attributes(claims: &mut Claims) {
    claims.offsets(
        "ibv_qp_init_attr",
        &[
            ("recv_cq", offset_of!(PairRequest, receive_queue)),
            ("cap", offset_of!(PairRequest, capacity)),
            ("qp_type", offset_of!(PairRequest, kind)),
        ],
    );
    claims.offsets(
        "ibv_qp_attr",
        &[
            ("path_mtu", offset_of!(PairAttributes, path_mtu)),
            ("rq_psn", offset_of!(PairAttributes, receive_psn)),
            ("sq_psn", offset_of!(PairAttributes, send_psn)),
            ("dest_qp_num", offset_of!(PairAttributes, destination)),
            ("qp_access_flags", offset_of!(PairAttributes, access)),
            ("ah_attr", offset_of!(PairAttributes, route)),
            ("pkey_index", offset_of!(PairAttributes, partition_index)),
            ("max_rd_atomic", offset_of!(PairAttributes, reads_max)),
            (
                "max_dest_rd_atomic",
                offset_of!(PairAttributes, reads_served_max),
            ),
            ("min_rnr_timer", offset_of!(PairAttributes, not_ready_timer)),
            ("port_num", offset_of!(PairAttributes, port)),
            ("timeout", offset_of!(PairAttributes, timeout)),
            ("retry_cnt", offset_of!(PairAttributes, retries)),
            ("rnr_retry", offset_of!(PairAttributes, not_ready_retries)),
        ],
    );
    claims.offsets(
        "ibv_ah_attr",
        &[
            ("grh.sgid_index", offset_of!(Route, source_index)),
            ("grh.hop_limit", offset_of!(Route, hops_max)),
            ("dlid", offset_of!(Route, lid)),
            ("is_global", offset_of!(Route, is_global)),
            ("port_num", offset_of!(Route, port)),
        ],
    );
}

fn constants(claims: &mut Claims) {
    for (theirs, ours) in [
        ("IBV_WR_RDMA_WRITE", operation::WRITE),
        (
            "IBV_WR_RDMA_WRITE_WITH_IMM",
            operation::WRITE_WITH_IMMEDIATE,
        ),
        ("IBV_WR_RDMA_READ", operation::READ),
        ("IBV_WR_LOCAL_INV", operation::INVALIDATE),
        ("IBV_WR_BIND_MW", operation::BIND),
        ("IBV_WC_RECV_RDMA_WITH_IMM", RECEIVED_WITH_IMMEDIATE),
        ("IBV_SEND_SIGNALED", SIGNALED),
        ("IBV_ACCESS_LOCAL_WRITE", access::LOCAL_WRITE),
        ("IBV_ACCESS_REMOTE_WRITE", access::REMOTE_WRITE),
        ("IBV_ACCESS_REMOTE_READ", access::REMOTE_READ),
        ("IBV_ACCESS_MW_BIND", access::BIND),
        ("IBV_QPS_INIT", state::INIT),
        ("IBV_QPS_RTR", state::READY_TO_RECEIVE),
        ("IBV_QPS_RTS", state::READY_TO_SEND),
        ("IBV_QPS_ERR", state::ERROR),
        ("IBV_QPT_RC", RELIABLE_CONNECTION),
        ("IBV_PORT_ACTIVE", PORT_ACTIVE),
        ("IBV_DEVICE_MEM_WINDOW_TYPE_2B", WINDOWS_2B),
        ("IBV_MW_TYPE_2", WINDOW_TYPE_2.cast_unsigned()),
    ] {
        claims.same(theirs, ours as usize);
    }
    for (theirs, ours) in [
        ("IBV_QP_STATE", attribute::STATE),
        ("IBV_QP_ACCESS_FLAGS", attribute::ACCESS),
        ("IBV_QP_PKEY_INDEX", attribute::PARTITION),
        ("IBV_QP_PORT", attribute::PORT),
        ("IBV_QP_AV", attribute::ROUTE),
        ("IBV_QP_PATH_MTU", attribute::PATH_MTU),
        ("IBV_QP_TIMEOUT", attribute::TIMEOUT),
        ("IBV_QP_RETRY_CNT", attribute::RETRIES),
        ("IBV_QP_RNR_RETRY", attribute::NOT_READY_RETRIES),
        ("IBV_QP_RQ_PSN", attribute::RECEIVE_PSN),
        ("IBV_QP_MAX_QP_RD_ATOMIC", attribute::READS),
        ("IBV_QP_MIN_RNR_TIMER", attribute::NOT_READY_TIMER),
        ("IBV_QP_SQ_PSN", attribute::SEND_PSN),
        ("IBV_QP_MAX_DEST_RD_ATOMIC", attribute::READS_SERVED),
        ("IBV_QP_DEST_QPN", attribute::DESTINATION),
    ] {
        claims.same(theirs, usize::try_from(ours).expect("flags are positive"));
    }
}

#[test]
#[ignore = "needs infiniband/verbs.h: make test-verbs fetches it, libibverbs-dev has it"]
fn structures_are_laid_out_as_the_header_says() {
    let folder = header_folder().expect("infiniband/verbs.h");
    let mut claims = Claims("#include <stddef.h>\n#include <infiniband/verbs.h>\n".to_owned());
    structures(&mut claims);
    requests(&mut claims);
    attributes(&mut claims);
    constants(&mut claims);
    let compiler = Command::new("cc")
        .args(["-fsyntax-only", "-x", "c", "-", "-I"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut compiler = compiler.expect("a C compiler");
    let mut input = compiler.stdin.take().expect("piped");
    input
        .write_all(claims.0.as_bytes())
        .expect("the compiler reads");
    drop(input);
    let output = compiler.wait_with_output().expect("the compiler ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_missing_provider_is_told_from_a_missing_device() {
    let why = super::device::named(std::iter::empty(), &["rxe0".to_owned()]);
    let why = why.expect_err("there is none");
    assert!(why.contains("no provider for rxe0"), "{why}");
    assert!(why.contains("ibverbs-providers"), "{why}");
    let names = super::device::named(["rxe0".to_owned()].into_iter(), &[]);
    assert_eq!(names, Ok(vec!["rxe0".to_owned()]));
}
