"""The words of GitHub: events and actions that are its own and not texts of who sends them.

https://docs.github.com/en/webhooks/webhook-events-and-payloads, as of November 2026. A word that
is missing here is shown as text from outside and loses nothing else.
"""

from __future__ import annotations

_EVENTS = """
    branch_protection_configuration branch_protection_rule check_run check_suite
    code_scanning_alert commit_comment create custom_property custom_property_values delete
    dependabot_alert deploy_key deployment deployment_protection_rule deployment_review
    deployment_status discussion discussion_comment fork github_app_authorization gollum
    installation installation_repositories installation_target issue_comment issue_dependencies
    issues label marketplace_purchase member membership merge_group meta milestone org_block
    organization package page_build personal_access_token_request ping project project_card
    project_column projects_v2 projects_v2_item projects_v2_status_update public pull_request
    pull_request_review pull_request_review_comment pull_request_review_thread push
    registry_package release repository repository_advisory repository_dispatch repository_import
    repository_ruleset repository_vulnerability_alert secret_scanning_alert
    secret_scanning_alert_location secret_scanning_scan security_advisory security_and_analysis
    sponsorship star status sub_issues team team_add watch workflow_dispatch workflow_job
    workflow_run
"""

EVENTS = frozenset(_EVENTS.split())

_ACTIONS = """
    added added_to_repository answered appeared_in_branch approved archived assigned auto_dismissed
    auto_merge_disabled auto_merge_enabled auto_reopened blocked blocked_by_added
    blocked_by_removed blocking_added blocking_removed cancelled category_changed
    checks_requested closed closed_by_user completed converted converted_to_draft copied created
    deleted demilestoned denied dequeued destroyed disabled dismissed edited enabled enqueued
    fixed in_progress labeled locked member_added member_invited member_removed milestoned moved
    new_permissions_accepted opened parent_issue_added parent_issue_removed pending
    pending_cancellation pending_change pending_change_cancelled pending_tier_change pinned
    privatized promote_to_enterprise_owner published publicized publicly_leaked purchased queued
    ready_for_review reintroduced rejected released removed removed_from_repository renamed
    reopened reopened_by_user reordered reported_in_body requested requested_action rerequested
    resolve resolved restored review_request_removed review_requested revoked started
    sub_issue_added sub_issue_removed submitted suspend synchronize tier_changed transferred typed
    unanswered unarchived unassigned unblocked unlabeled unlocked unpinned unpublished unresolved
    unsuspend unsuspended untyped updated update validated waiting withdrawn
"""

ACTIONS = frozenset(_ACTIONS.split())
